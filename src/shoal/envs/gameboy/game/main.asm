; Tidekeep: a diver looks for the pearl of a sunken keep.
;
; Sixty times a second, while the line above the room is drawn, the game moves everything and copies
; the sprites: so what is seen below is what was just decided. The background is changed in the
; vertical blank that follows.

        INCLUDE "hardware.asm"
        INCLUDE "tiles.asm"
        INCLUDE "maps.asm"
        INCLUDE "ram.asm"

        SECTION ROM, $0040
        jp AtBlank
        SECTION ROM, $0048
        jp AtTop

        SECTION ROM, $0100
        nop
        jp Start

        SECTION ROM, $0150

Start:
        di
        ld sp, $E000
.wait:  ldh a, [rLY]            ; the screen may be switched off only when nothing is drawn
        cp FIRST_BLANK
        jr c, .wait
        xor a
        ldh [rLCDC], a
        ldh [rSCX], a
        ldh [rSCY], a
        ldh [hAtTop], a
        ldh [hBlank], a
        ld hl, $C000
        ld bc, $0400
        call Clear
        call CopyTiles
        call ClearMaps
        ld hl, CopySprites
        ld de, hCopySprites
        ld bc, CopySpritesEnd - CopySprites
        call Copy
        call hCopySprites

        ld a, %11100100
        ldh [rBGP], a
        ld a, %11010000
        ldh [rOBP0], a
        xor a
        ldh [rLYC], a
        ldh [rIF], a
        ld a, STAT_AT_LINE
        ldh [rSTAT], a
        ld a, HEAR_BOTH
        ldh [rIE], a
        ld a, 1
        ld [wRestart], a
        ld [wSeed], a
        ld a, LCD_ON
        ld [wScreen], a
        ldh [rLCDC], a
        ei

Loop:
        call WaitForTop
        call ReadPad
        call Update
        call DrawSprites
        call hCopySprites
        call LookAround
        call WaitForBlank
        call DrawBackground
        jr Loop

AtBlank:
        push af
        ld a, 1
        ldh [hBlank], a
        pop af
        reti

AtTop:
        push af
        ld a, 1
        ldh [hAtTop], a
        pop af
        reti

WaitForTop:
        ldh a, [hAtTop]
        and a
        jr nz, .now
        halt
        nop
        jr WaitForTop
.now:   xor a
        ldh [hAtTop], a
        ret

WaitForBlank:
        ldh a, [hBlank]
        and a
        jr nz, .now
        halt
        nop
        jr WaitForBlank
.now:   xor a
        ldh [hBlank], a
        ret

; hPad: one bit for each button, 1 while it is held.
ReadPad:
        ld a, $20
        ldh [rP1], a
        ldh a, [rP1]
        ldh a, [rP1]            ; buttons need a moment
        cpl
        and $0F
        ld b, a
        ld a, $10
        ldh [rP1], a
        ldh a, [rP1]
        ldh a, [rP1]
        ldh a, [rP1]
        ldh a, [rP1]
        cpl
        and $0F
        swap a
        or b
        ldh [hPad], a
        ld a, $30
        ldh [rP1], a
        ret

; One sixtieth of a second of the game.
Update:
        ld hl, wFrame
        inc [hl]
        jr nz, .counted
        inc hl
        inc [hl]
.counted:
        ld a, [wRestart]
        and a
        jp nz, NewGame
        ld a, [wState]
        and a
        jr nz, .over
        ld hl, wFreeze
        ld a, [hl]
        and a
        jr z, .play
        dec [hl]
        ret
.play:  ld hl, wSafe
        ld a, [hl]
        and a
        jr z, .unsafe
        dec [hl]
.unsafe:
        call UpdateHero
        ld a, [wFreeze]         ; the hero has left the room
        and a
        ret nz
        call UpdateCrab
        jp Touch
.over:  ldh a, [hPad]
        bit PAD_START, a
        ret z
        ld a, [wRng]            ; another game than this one
        ld [wSeed], a
        ld a, [wRng + 1]
        ld [wSeed + 1], a
        jp NewGame

; BC bytes at HL become 0.
Clear:
        ld [hl], 0
        inc hl
        dec bc
        ld a, b
        or c
        jr nz, Clear
        ret

; BC bytes from HL to DE.
Copy:
        ld a, [hl+]
        ld [de], a
        inc de
        dec bc
        ld a, b
        or c
        jr nz, Copy
        ret

        INCLUDE "game.asm"
        INCLUDE "senses.asm"
        INCLUDE "hero.asm"
        INCLUDE "crab.asm"
        INCLUDE "draw.asm"
