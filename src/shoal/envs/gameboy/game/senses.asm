; What the hero knows of its surroundings. Only players look here: the game itself does not.

LookAround:
        ld hl, wLookAgain
        ld a, [hl]
        and a
        ret z
        ld [hl], 0
        call FindThings
        ; fall through

; wWalls and wFresh: one bit for each direction, in the order of wFacing.
FeelWalls:
        xor a
        ld [wWalls], a
        ld [wFresh], a
        ld e, 4
.next:  dec e
        ld hl, wWalls
        sla [hl]
        inc hl
        sla [hl]
        ld a, [wX]
        ld c, a
        ld a, [wY]
        ld b, a
        ld a, e
        call StepCell
        jr c, .done             ; a doorway: there is a way, and no cell
        call FindCell
        ld a, [hl]
        cp SOLID
        jr c, .open
        cp GATE
        jr nz, .wall
        ld a, [wKey]
        and a
        jr nz, .open
.wall:  ld hl, wWalls
        inc [hl]
        jr .done
.open:  call FindSeen
        ld a, [hl]
        and a
        jr nz, .done
        ld hl, wFresh
        inc [hl]
.done:  ld a, e
        and a
        jr nz, .next
        ret

; wRadar: where things are, from the hero's cell.
FindThings:
        ld hl, wThings
        ld de, wRadar
        ld b, NUM_THINGS
.next:  ld a, [hl+]
        and a
        jr z, .none
        ld a, [wX]
        ld c, a
        ld a, [hl+]
        sub c
        add a, ROOM_WIDTH - 1
        ld [de], a
        inc de
        ld a, [wY]
        ld c, a
        ld a, [hl+]
        sub c
        add a, ROOM_HEIGHT - 1
        jr .done
.none:  inc hl
        inc hl
        ld a, ROOM_WIDTH - 1
        ld [de], a
        inc de
        ld a, ROOM_HEIGHT - 1
.done:  ld [de], a
        inc de
        dec b
        jr nz, .next
        ret

; The hero steps on its cell: one more is explored, if it is the first time.
MarkCell:
        ld a, 1
        ld [wLookAgain], a
        ld a, [wX]
        ld c, a
        ld a, [wY]
        ld b, a
        call FindSeen
        ld a, [hl]
        and a
        ret nz
        inc [hl]
        ld hl, wExplored
        inc [hl]
        ret nz
        inc hl
        inc [hl]
        ret

; HL = whether the cell in column C of row B of this room has been stepped on. Changes A.
FindSeen:
        call FindCell
        ld a, [wSeenHere]
        add a, l
        ld l, a
        ld a, [wSeenHere + 1]
        adc a, 0
        ld h, a
        ret

; wSeenHere: what FindSeen adds to the low byte of a cell's address in wMap.
FindSeenHere:
        ld hl, wSeen - LOW(wMap)
        ld de, ROOM_CELLS
        ld a, [wRoom]
        inc a
.room:  dec a
        jr z, .found
        add hl, de
        jr .room
.found: ld a, l
        ld [wSeenHere], a
        ld a, h
        ld [wSeenHere + 1], a
        ret
