; A crab wanders about by chance: two pixels a frame for eight frames, and a rest of eight.

CRAB_FRAMES     EQU 16
REST_FRAMES     EQU 8
CRAB_PIXELS     EQU 2
REACH           EQU 12          ; pixels between two that touch, both across and down, are fewer
SAFE_FRAMES     EQU 64

PlaceCrab:
        ld a, [wCrabX]
        swap a
        ld [wCrabPx], a
        ld a, [wCrabY]
        swap a
        ld [wCrabPy], a
        ld a, REST_FRAMES
        ld [wCrabStep], a
        ret

UpdateCrab:
        ld a, [wCrabHere]
        and a
        ret z
        ld hl, wCrabStep
        ld a, [hl]
        and a
        jr z, .think
        dec [hl]
        ld a, [hl]
        cp REST_FRAMES
        ret c
        ld hl, wCrabPx
        ld d, CRAB_PIXELS
        ld a, [wCrabFacing]
        jp StepPixels
.think: ld [hl], REST_FRAMES
        call Random
        and %11
        ld [wCrabFacing], a
        ld e, a
        ld a, [wCrabX]
        ld c, a
        ld a, [wCrabY]
        ld b, a
        ld a, e
        call StepCell           ; never outside: rooms have walls, and doorways are no floor
        call FindCell
        ld a, [hl]
        cp CRABS_BELOW
        ret nc
        ld a, c
        ld [wCrabX], a
        ld a, b
        ld [wCrabY], a
        ld a, CRAB_FRAMES
        ld [wCrabStep], a
        ld [wLookAgain], a
        ret

; The fork drives the crab away; else the crab hurts the hero.
Touch:
        ld a, [wCrabHere]
        and a
        ret z
        ld a, [wFork]
        and a
        jr z, .hero
        call FindFork
        call IsCrabAt
        jr c, DriveAway
.hero:  ld a, [wSafe]
        ld b, a
        ld a, [wShield]
        or b
        ret nz
        ld a, [wPx]
        ld c, a
        ld a, [wPy]
        ld b, a
        call IsCrabAt
        ret nc
        ld a, SAFE_FRAMES
        ld [wSafe], a
        ld hl, wDamage
        inc [hl]
        ld hl, wHearts
        dec [hl]
        jp nz, WriteStatus
        ld a, LOST
        ld [wState], a
        jp WriteStatus

DriveAway:
        ld hl, wFoes
        inc [hl]
        ld a, 1
        ld [wLookAgain], a
        xor a
        ld [wCrabHere], a
        ld [wCrabX], a
        ld [wCrabY], a
        ld [wCrabStep], a
        ld a, [wRoom]
        call LeftInRoom
        ld a, [hl]
        and ~HAS_CRAB & $FF
        ld [hl], a
        ret

; C, B = the left and upper edge of the fork, one cell before the hero.
FindFork:
        ld a, [wPx]
        ld c, a
        ld a, [wPy]
        ld b, a
        ld a, [wFacing]
        and a
        jr z, .up
        dec a
        jr z, .down
        dec a
        jr z, .left
        ld a, c
        add a, 16
        ld c, a
        ret
.up:    ld a, b
        sub 16
        ld b, a
        ret
.down:  ld a, b
        add a, 16
        ld b, a
        ret
.left:  ld a, c
        sub 16
        ld c, a
        ret

; Carry: the crab touches what has its left and upper edge at C, B.
IsCrabAt:
        ld a, [wCrabPx]
        sub c
        jr nc, .right
        cpl
        inc a
.right: cp REACH
        ret nc
        ld a, [wCrabPy]
        sub b
        jr nc, .below
        cpl
        inc a
.below: cp REACH
        ret
