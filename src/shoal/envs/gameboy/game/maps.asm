; The rooms, and where things may lie in them.
;
;       0 - 1 X 2       X is the gate: the key is in one of 0, 3 and 5
;       |   |
;       3 - 4 - 5       the hero begins in 4, the pearl is in 2

FLOOR   EQU 0                   ; kinds of cells, in the order of their pictures (tiles.asm)
WEED    EQU 1
PAVED   EQU 2                   ; from here on crabs do not walk
RUPEE   EQU 3
KEY     EQU 4
PEARL   EQU 5
ROCK    EQU 6                   ; from here on nobody does
CORAL   EQU 7
GATE    EQU 8
CRABS_BELOW     EQU PAVED
SOLID           EQU ROCK

ROOM_WIDTH      EQU 10
ROOM_HEIGHT     EQU 8
ROOM_CELLS      EQU ROOM_WIDTH * ROOM_HEIGHT
NUM_SPOTS       EQU 8
ROOM_BYTES      EQU ROOM_CELLS + NUM_SPOTS
NUM_ROOMS       EQU 6
ROOMS_ACROSS    EQU 3

START_ROOM      EQU 4
START_X         EQU 4
START_Y         EQU 4
GATE_ROOM       EQU 1
GATE_X          EQU 9           ; it is two cells high
GATE_Y          EQU 3
NO_ROOM         EQU 6

HAS_RUPEE_A     EQU %00000001   ; bits of wLeft
HAS_RUPEE_B     EQU %00000010
HAS_KEY         EQU %00000100
HAS_PEARL       EQU %00001000
HAS_CRAB        EQU %00010000

        CHARMAP ".", FLOOR
        CHARMAP ",", WEED
        CHARMAP "=", PAVED
        CHARMAP "#", ROCK
        CHARMAP "c", CORAL
        CHARMAP "X", GATE

        SECTION ROM, $3000

; Eight spots follow each room, y * 16 + x. Things have different ones of them.
Rooms:
        DB "##########"
        DB "#...,....#"
        DB "#.cc..c..#"
        DB "#........="
        DB "#.,..c...="
        DB "#.c..c.,.#"
        DB "#........#"
        DB "####==####"
        DB $11, $14, $18, $41, $34, $27, $53, $61

        DB "##########"
        DB "#.,......#"
        DB "#..c..c..#"
        DB "=........X"
        DB "=........X"
        DB "#..c..c..#"
        DB "#......,.#"
        DB "####==####"
        DB $11, $14, $18, $34, $46, $68, $61, $24

        DB "##########"
        DB "#.......,#"
        DB "#.cc..cc.#"
        DB "=........#"
        DB "=.....,..#"
        DB "#.cc..cc.#"
        DB "#,.......#"
        DB "##########"
        DB $14, $18, $38, $35, $68, $64, $55, $61

        DB "####==####"
        DB "#......,.#"
        DB "#.c....c.#"
        DB "#..####..="
        DB "#........="
        DB "#.c....c.#"
        DB "#...,....#"
        DB "##########"
        DB $11, $18, $41, $54, $61, $66, $68, $23

        DB "####==####"
        DB "#........#"
        DB "#..,.....#"
        DB "=........="
        DB "=........="
        DB "#......,.#"
        DB "#..c..c..#"
        DB "##########"
        DB $22, $27, $52, $57, $11, $18, $61, $68

        DB "##########"
        DB "#...c....#"
        DB "#.c.c.cc.#"
        DB "=........#"
        DB "=.,....,.#"
        DB "#.c.cc.c.#"
        DB "#....c...#"
        DB "##########"
        DB $11, $13, $16, $18, $35, $48, $68, $63

; What is in each room when a game begins, but for the key.
FirstThings:
        DB HAS_RUPEE_A | HAS_RUPEE_B | HAS_CRAB
        DB HAS_RUPEE_A | HAS_RUPEE_B
        DB HAS_RUPEE_A | HAS_RUPEE_B | HAS_CRAB | HAS_PEARL
        DB HAS_RUPEE_A | HAS_RUPEE_B | HAS_CRAB
        DB HAS_RUPEE_A | HAS_RUPEE_B
        DB HAS_RUPEE_A | HAS_RUPEE_B | HAS_CRAB

; Where the key may be.
KeyRooms:
        DB 0, 3, 5

; In the order of wThings: its bit, how many spots after the room's first, and its kind of cell.
Things:
        DB HAS_RUPEE_A, 0, RUPEE
        DB HAS_RUPEE_B, 3, RUPEE
        DB HAS_KEY,     5, KEY
        DB HAS_PEARL,   6, PEARL
        DB HAS_CRAB,    2, FLOOR
NUM_THINGS      EQU 5
