; The hero walks from cell to cell: four pixels a frame, four frames a cell.

STEP_FRAMES     EQU 4
STEP_PIXELS     EQU 4
FORK_FRAMES     EQU 4

WON     EQU 1
LOST    EQU 2

UpdateHero:
        ld a, [wMoving]
        and a
        jr nz, Walk
        ld a, [wFork]
        and a
        jr z, .ready
        dec a
        ld [wFork], a
        ret nz
.ready: xor a
        ld [wShield], a
        ldh a, [hPad]
        bit PAD_A, a
        jr nz, Strike
        bit PAD_B, a
        jr nz, Shelter
        ld b, 0
        bit PAD_UP, a
        jr nz, Turn
        inc b
        bit PAD_DOWN, a
        jr nz, Turn
        inc b
        bit PAD_LEFT, a
        jr nz, Turn
        inc b
        bit PAD_RIGHT, a
        jr nz, Turn
        ret

Strike:
        ld a, FORK_FRAMES
        ld [wFork], a
        ret

Shelter:
        ld a, 1
        ld [wShield], a
        ret

; Look in direction B and go there, if nothing is in the way.
Turn:
        ld a, b
        ld [wFacing], a
        ld e, a
        ld a, [wX]
        ld c, a
        ld a, [wY]
        ld b, a
        ld a, e
        call StepCell
        jr c, LeaveRoom
        call FindCell
        ld a, [hl]
        cp GATE
        call z, Unlock
        cp SOLID
        ret nc
        ld a, c
        ld [wX], a
        ld a, b
        ld [wY], a
        ld a, STEP_FRAMES
        ld [wMoving], a
        ld [wLookAgain], a
        ; fall through: the first pixels at once

Walk:
        ld hl, wPx
        ld d, STEP_PIXELS
        ld a, [wFacing]
        call StepPixels
        ld hl, wMoving
        dec [hl]
        ret nz
        jr Arrive

; With the key the gate opens: A is what the cell is then.
Unlock:
        ld a, [wKey]
        and a
        ld a, GATE
        ret z
        xor a
        ld [wKey], a
        inc a
        ld [wDoor], a
        call OpenGate
        push bc
        ld bc, GATE_Y * 256 + GATE_X
        call DrawCellAgain
        inc b
        call DrawCellAgain
        call WriteStatus
        pop bc
        ld a, PAVED
        ret

; Through a doorway: the hero appears on the other side of the room beyond.
LeaveRoom:
        ld hl, wRoom
        ld a, [wFacing]
        and a
        jr z, .up
        dec a
        jr z, .down
        dec a
        jr z, .left
        inc [hl]
        xor a
        ld [wX], a
        jp EnterRoom
.left:  dec [hl]
        ld a, ROOM_WIDTH - 1
        ld [wX], a
        jp EnterRoom
.up:    ld a, [hl]
        sub ROOMS_ACROSS
        ld [hl], a
        ld a, ROOM_HEIGHT - 1
        ld [wY], a
        jp EnterRoom
.down:  ld a, [hl]
        add a, ROOMS_ACROSS
        ld [hl], a
        xor a
        ld [wY], a
        jp EnterRoom

; The hero is on a cell: take what lies there.
Arrive:
        call MarkCell
        ld a, [wX]
        ld c, a
        ld a, [wY]
        ld b, a
        call FindCell
        ld a, [hl]
        cp RUPEE
        jr c, .nothing
        cp SOLID
        jr nc, .nothing
        ld [hl], FLOOR
        push af
        call DrawCellAgain
        call TakeThing
        pop af
        cp RUPEE
        jr z, .rupee
        cp KEY
        jr z, .key
        ld a, WON
        ld [wState], a
        jp WriteStatus
.rupee: ld hl, wRupees
        inc [hl]
        jp WriteStatus
.key:   ld a, 1
        ld [wKey], a
        ld a, NO_ROOM
        ld [wKeyRoom], a
        jp WriteStatus
.nothing:
        ret

; What lies in column C of row B is no longer in this room.
TakeThing:
        ld hl, wThings
        ld d, HAS_RUPEE_A
.next:  ld a, [hl+]
        and a
        jr z, .other
        ld a, [hl]
        cp c
        jr nz, .other
        inc hl
        ld a, [hl-]
        cp b
        jr z, .found
.other: inc hl
        inc hl
        sla d
        bit 4, d                ; the crab's: these were all
        jr z, .next
        ret
.found: xor a
        ld [hl+], a
        ld [hl-], a
        dec hl
        ld [hl], a
        ld a, [wRoom]
        call LeftInRoom
        ld a, d
        cpl
        and [hl]
        ld [hl], a
        ret
