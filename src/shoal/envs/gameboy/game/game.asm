; A new game, a new room, and chance.

HEARTS          EQU 3
FACING_DOWN     EQU 1
GRACE           EQU 16          ; frames after entering a room in which nothing hurts
DRAW_PARTS      EQU 3

NewGame:
        xor a
        ld [wRestart], a
        ld hl, wGame
        ld bc, wGameEnd - wGame
        call Clear
        ld hl, wSeen
        ld bc, NUM_ROOMS * ROOM_CELLS
        call Clear
        call SeedChance
        ld hl, wSpots
        ld b, NUM_ROOMS
.spot:  call Random
        and NUM_SPOTS - 1
        ld [hl+], a
        dec b
        jr nz, .spot
        ld hl, FirstThings
        ld de, wLeft
        ld bc, NUM_ROOMS
        call Copy
        call HideKey
        ld a, HEARTS
        ld [wHearts], a
        ld a, FACING_DOWN
        ld [wFacing], a
        ld a, START_ROOM
        ld [wRoom], a
        ld a, START_X
        ld [wX], a
        ld a, START_Y
        ld [wY], a
        jp EnterRoom

; Put the key into one of three rooms.
HideKey:
        call Random
        and %11
        cp 3
        jr z, HideKey
        ld c, a
        ld b, 0
        ld hl, KeyRooms
        add hl, bc
        ld a, [hl]
        ld [wKeyRoom], a
        call LeftInRoom
        ld a, [hl]
        or HAS_KEY
        ld [hl], a
        ret

; HL = what is left in room A.
LeftInRoom:
        ld hl, wLeft
        add a, l
        ld l, a
        ret

SeedChance:
        ld a, [wSeed]
        ld [wRng], a
        ld b, a
        ld a, [wSeed + 1]
        ld [wRng + 1], a
        or b
        jr nz, .stir
        inc a                   ; from 0 there would never come anything but 0
        ld [wRng], a
.stir:  call Random
        jp Random

; A = a byte by chance: eight steps of a shift register with feedback, which takes 65535 values.
Random:
        push bc
        push hl
        ld hl, wRng
        ld a, [hl+]
        ld h, [hl]
        ld l, a
        ld b, 8
.step:  srl h
        rr l
        jr nc, .even
        ld a, h
        xor $B4
        ld h, a
.even:  dec b
        jr nz, .step
        ld a, h
        ld [wRng + 1], a
        ld a, l
        ld [wRng], a
        pop hl
        pop bc
        ret

; The hero is in wRoom at wX, wY: everything else about being there.
EnterRoom:
        call PlaceHero
        call MarkRoom
        call LoadRoom
        call PlaceThings
        call PlaceCrab
        call FindSeenHere
        call MarkCell
        xor a
        ld [wChanged], a
        ld a, GRACE
        ld [wSafe], a
        ld a, DRAW_PARTS
        ld [wDraw], a
        ld [wFreeze], a
        ld a, LOW(wMap)
        ld [wDrawFrom], a
        ld hl, vFirstMap + 2 * MAP_COLUMNS
        ld a, [wScreen]
        and LCD_SECOND_MAP
        jr nz, .hidden
        ld hl, vSecondMap + 2 * MAP_COLUMNS
.hidden:                        ; is drawn to the map that is not shown
        ld a, l
        ld [wDrawTo], a
        ld a, h
        ld [wDrawTo + 1], a
        jp WriteStatus

PlaceHero:
        ld a, [wX]
        swap a
        ld [wPx], a
        ld a, [wY]
        swap a
        ld [wPy], a
        ret

MarkRoom:
        ld a, [wRoom]
        ld b, a
        inc b
        ld a, 1
.shift: dec b
        jr z, .mark
        add a, a
        jr .shift
.mark:  ld hl, wRooms
        or [hl]
        ld [hl], a
        ret

; wMap = the cells of wRoom. DE = its spots.
LoadRoom:
        ld hl, Rooms
        ld de, ROOM_BYTES
        ld a, [wRoom]
        inc a
.room:  dec a
        jr z, .found
        add hl, de
        jr .room
.found: ld de, wMap
        ld b, ROOM_CELLS
.cell:  ld a, [hl+]
        ld [de], a
        inc e
        dec b
        jr nz, .cell
        ld d, h
        ld e, l
        ld a, [wRoom]
        cp GATE_ROOM
        ret nz
        ld a, [wDoor]
        and a
        ret z
        ; fall through: the gate was opened before

OpenGate:
        ld a, PAVED
        ld [wMap + GATE_Y * ROOM_WIDTH + GATE_X], a
        ld [wMap + (GATE_Y + 1) * ROOM_WIDTH + GATE_X], a
        ret

; wThings, and their cells in wMap. DE = the spots of this room.
PlaceThings:
        ld a, NUM_THINGS
        ldh [hCount], a
        ld hl, Things
        ld bc, wThings
.next:  push hl
        ld a, [wRoom]
        call LeftInRoom
        ld a, [hl]
        pop hl
        and [hl]
        inc hl
        jr nz, .here
        xor a                   ; not here: all three are 0
        ld [bc], a
        inc bc
        ld [bc], a
        inc bc
        ld [bc], a
        inc bc
        inc hl
        inc hl
        jr .done
.here:  ld a, 1
        ld [bc], a
        inc bc
        push hl
        ld a, [wRoom]
        ld hl, wSpots
        add a, l
        ld l, a
        ld a, [hl]
        pop hl
        add a, [hl]
        inc hl
        and NUM_SPOTS - 1
        push hl
        ld l, a
        ld h, 0
        add hl, de
        ld a, [hl]              ; y * 16 + x
        pop hl
        push de
        ld e, a
        and $0F
        ld [bc], a
        inc bc
        ld d, a
        ld a, e
        swap a
        and $0F
        ld [bc], a
        inc bc
        push bc
        ld b, a
        ld c, d
        ld a, [hl+]             ; its kind
        and a
        jr z, .drawn
        push hl
        push af
        call FindCell
        pop af
        ld [hl], a
        pop hl
.drawn: pop bc
        pop de
.done:  ldh a, [hCount]
        dec a
        ldh [hCount], a
        jr nz, .next
        ret

; HL = the cell in column C of row B. Changes A.
FindCell:
        ld a, b
        add a, a
        ld l, a
        add a, a
        add a, a
        add a, l
        add a, c
        add a, LOW(wMap)
        ld l, a
        ld h, HIGH(wMap)
        ret

; One cell further: column C, row B, in direction A. Carry: that is outside of the room.
StepCell:
        and a
        jr z, .up
        dec a
        jr z, .down
        dec a
        jr z, .left
        inc c
        ld a, c
        cp ROOM_WIDTH
        ccf
        ret
.up:    ld a, b
        dec b
        sub 1
        ret
.down:  inc b
        ld a, b
        cp ROOM_HEIGHT
        ccf
        ret
.left:  ld a, c
        dec c
        sub 1
        ret

; D pixels further: the position at HL (x, then y) in direction A.
StepPixels:
        cp 2
        jr nc, .across
        inc hl
        and a
        jr z, .less
        jr .more
.across:
        cp 2
        jr z, .less
.more:  ld a, [hl]
        add a, d
        ld [hl], a
        ret
.less:  ld a, [hl]
        sub d
        ld [hl], a
        ret
