; Registers of the Game Boy, and bits in them.

rP1     EQU $FF00               ; buttons
rIF     EQU $FF0F               ; interrupts that wait
rLCDC   EQU $FF40               ; the screen: on, and where its tiles are
rSTAT   EQU $FF41
rSCY    EQU $FF42
rSCX    EQU $FF43
rLY     EQU $FF44               ; the line that is being drawn
rLYC    EQU $FF45               ; the line that STAT tells of
rDMA    EQU $FF46               ; copies sprites
rBGP    EQU $FF47               ; palettes
rOBP0   EQU $FF48
rIE     EQU $FFFF               ; interrupts that are heard

LCD_ON          EQU %10010111   ; background at $9800, tiles at $8000, sprites of 8 by 16
LCD_SECOND_MAP  EQU %00001000   ; background at $9C00
STAT_AT_LINE    EQU %01000000
HEAR_BOTH       EQU %00000011   ; vertical blank, and STAT
FIRST_BLANK     EQU 144         ; of lines; there are none to draw from here on

PAD_RIGHT       EQU 0           ; bits of hPad
PAD_LEFT        EQU 1
PAD_UP          EQU 2
PAD_DOWN        EQU 3
PAD_A           EQU 4
PAD_B           EQU 5
PAD_START       EQU 7

FLIP_X          EQU %00100000   ; of sprites
FLIP_Y          EQU %01000000

vSprites        EQU $8000
vBackground     EQU $8200
vFirstMap       EQU $9800
vSecondMap      EQU $9C00
MAP_BYTES       EQU $0400
MAP_COLUMNS     EQU 32
SCREEN_COLUMNS  EQU 20
