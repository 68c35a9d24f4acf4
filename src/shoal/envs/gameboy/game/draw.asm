; What is seen. Sprites are drawn at the top of the screen, the background in the vertical blank.

FIRST_CELL      EQU (vBackground - vSprites) / TILE_BYTES
FIRST_ICON      EQU FIRST_CELL + (IconTiles - CellTiles) / TILE_BYTES
ICON_BLANK      EQU FIRST_ICON
ICON_HEART      EQU FIRST_ICON + 1
ICON_NO_HEART   EQU FIRST_ICON + 2
ICON_RUPEE      EQU FIRST_ICON + 3
ICON_KEY        EQU FIRST_ICON + 4
ICON_WAVE       EQU FIRST_ICON + 5
FONT            EQU FIRST_CELL + (FontTiles - CellTiles) / TILE_BYTES

SPRITE_DOWN     EQU (TileHeroDown - SpriteTiles) / TILE_BYTES
SPRITE_UP       EQU (TileHeroUp - SpriteTiles) / TILE_BYTES
SPRITE_SIDE     EQU (TileHeroSide - SpriteTiles) / TILE_BYTES
SPRITE_STEP     EQU (TileHeroStep - SpriteTiles) / TILE_BYTES
SPRITE_CRAB     EQU (TileCrab - SpriteTiles) / TILE_BYTES
SPRITE_FORK_UP  EQU (TileForkUp - SpriteTiles) / TILE_BYTES
SPRITE_FORK     EQU (TileForkSide - SpriteTiles) / TILE_BYTES
SPRITE_BUBBLE   EQU (TileBubble - SpriteTiles) / TILE_BYTES

ROOM_TOP        EQU 16          ; lines of the screen above the room
SPRITES_USED    EQU 8

        CHARMAP " ", ICON_BLANK
        CHARMAP "A", FONT + 10
        CHARMAP "B", FONT + 11
        CHARMAP "C", FONT + 12
        CHARMAP "D", FONT + 13
        CHARMAP "E", FONT + 14
        CHARMAP "F", FONT + 15
        CHARMAP "G", FONT + 16
        CHARMAP "H", FONT + 17
        CHARMAP "L", FONT + 18
        CHARMAP "N", FONT + 19
        CHARMAP "O", FONT + 20
        CHARMAP "P", FONT + 21
        CHARMAP "R", FONT + 22
        CHARMAP "S", FONT + 23
        CHARMAP "T", FONT + 24
        CHARMAP "U", FONT + 25
        CHARMAP "Y", FONT + 26

; --- once

CopyTiles:
        ld hl, SpriteTiles
        ld de, vSprites
        ld bc, SpriteEnd - SpriteTiles
        call Copy
        ld hl, CellTiles
        ld de, vBackground
        ld bc, BackgroundEnd - CellTiles
        jp Copy

; Both maps blank, with waves above the room.
ClearMaps:
        ld hl, vFirstMap
        ld bc, 2 * MAP_BYTES
.blank: ld a, ICON_BLANK
        ld [hl+], a
        dec bc
        ld a, b
        or c
        jr nz, .blank
        ld hl, vFirstMap + MAP_COLUMNS
        call .waves
        ld hl, vSecondMap + MAP_COLUMNS
.waves: ld b, SCREEN_COLUMNS
        ld a, ICON_WAVE
.wave:  ld [hl+], a
        dec b
        jr nz, .wave
        ret

; Runs from hCopySprites: while sprites are copied the processor sees nothing else.
CopySprites:
        ld a, HIGH(wSprites)
        ldh [rDMA], a
        ld a, 40
.wait:  dec a
        jr nz, .wait
        ret
CopySpritesEnd:

; --- sprites

DrawSprites:
        ld a, [wDraw]           ; the old room is still shown, and so are its sprites
        and a
        ret nz
        ld hl, wSprites
        call DrawBubble
        call DrawFork
        call DrawHero
        call DrawCrab
.rest:  ld a, l
        cp LOW(wSprites) + 4 * SPRITES_USED
        ret nc
        ld [hl], 0              ; out of sight
        add a, 4
        ld l, a
        jr .rest

DrawBubble:
        ld a, [wShield]
        and a
        ret z
        call FindHero
        ld de, SPRITE_BUBBLE * 256
        jr DrawPair

DrawFork:
        ld a, [wFork]
        and a
        ret z
        call FindFork
        ld de, SPRITE_FORK_UP * 256
        ld a, [wFacing]
        and a
        jr z, DrawPair
        ld e, FLIP_Y
        dec a
        jr z, DrawPair
        ld de, SPRITE_FORK * 256 + FLIP_X
        dec a
        jr z, DrawPair
        ld e, 0
        jr DrawPair

DrawHero:
        ld a, [wSafe]           ; blinks
        and %00000100
        ld b, a
        ld a, [wDamage]
        and a
        jr z, .seen
        ld a, b
        and a
        ret nz
.seen:  ld a, [wX]
        ld b, a
        ld a, [wY]
        xor b
        and 1
        ld b, a                 ; 1 on every second cell: the other foot
        ld de, SPRITE_UP * 256
        ld a, [wFacing]
        and a
        jr z, .upright
        ld d, SPRITE_DOWN
        dec a
        jr z, .upright
        ld d, SPRITE_SIDE
        bit 0, b
        jr z, .side
        ld d, SPRITE_STEP
.side:  dec a
        jr nz, .draw
        ld e, FLIP_X
        jr .draw
.upright:
        bit 0, b
        jr z, .draw
        ld e, FLIP_X
.draw:  call FindHero
        jr DrawPair

DrawCrab:
        ld a, [wCrabHere]
        and a
        ret z
        ld a, [wCrabPx]
        ld c, a
        ld a, [wCrabPy]
        ld b, a
        ld de, SPRITE_CRAB * 256
        ld a, [wFrame]
        bit 3, a
        jr z, DrawPair
        ld e, FLIP_X
        ; fall through

; Two sprites, 16 by 16 pixels: left edge C, upper edge B, tile D, attributes E.
DrawPair:
        ld a, b
        add a, ROOM_TOP + 16
        ld [hl+], a
        ld a, c
        add a, 8
        ld [hl+], a
        ld a, d
        bit 5, e                ; mirrored: the right half comes first
        jr z, .left
        add a, 2
.left:  ld [hl+], a
        ld a, e
        ld [hl+], a
        ld a, b
        add a, ROOM_TOP + 16
        ld [hl+], a
        ld a, c
        add a, 16
        ld [hl+], a
        ld a, d
        bit 5, e
        jr nz, .right
        add a, 2
.right: ld [hl+], a
        ld a, e
        ld [hl+], a
        ret

FindHero:
        ld a, [wPx]
        ld c, a
        ld a, [wPy]
        ld b, a
        ret

; --- the background

; In the vertical blank: the next part of a new room, or what has changed in this one.
DrawBackground:
        ld a, [wDraw]
        and a
        jr nz, DrawPart
        call DrawChanged
        ld a, [wStatusChanged]
        and a
        ret z
        xor a
        ld [wStatusChanged], a
        ld hl, vFirstMap
        call .copy
        ld hl, vSecondMap
.copy:  ld de, wStatus
        ld b, SCREEN_COLUMNS
.tile:  ld a, [de]
        inc e
        ld [hl+], a
        dec b
        jr nz, .tile
        ret

; Three rows of cells, three, and two: then the map is complete, and is shown.
DrawPart:
        dec a
        ld [wDraw], a
        ld c, 3
        jr nz, .begin
        dec c
.begin: ld a, [wDrawFrom]
        ld e, a
        ld d, HIGH(wMap)
        ld a, [wDrawTo]
        ld l, a
        ld a, [wDrawTo + 1]
        ld h, a
.row:   ld b, ROOM_WIDTH
.cell:  ld a, [de]
        inc e
        call DrawCell
        dec b
        jr nz, .cell
        ld a, 2 * MAP_COLUMNS - 2 * ROOM_WIDTH
        add a, l
        ld l, a
        jr nc, .same
        inc h
.same:  dec c
        jr nz, .row
        ld a, e
        ld [wDrawFrom], a
        ld a, l
        ld [wDrawTo], a
        ld a, h
        ld [wDrawTo + 1], a
        ld a, [wDraw]
        and a
        ret nz
        ld a, [wScreen]
        xor LCD_SECOND_MAP
        ld [wScreen], a
        ldh [rLCDC], a
        ret

; Four tiles of a cell of kind A at HL, which is then at the next cell.
DrawCell:
        add a, a
        add a, a
        add a, FIRST_CELL
        ld [hl+], a
        add a, 2
        ld [hl], a
        set 5, l                ; the line of tiles below: those of cells begin at multiples of 64
        inc a
        ld [hl-], a
        sub 2
        ld [hl+], a
        inc l
        res 5, l
        ret

; The cell in column C of row B is drawn again with the next vertical blank.
DrawCellAgain:
        ld hl, wChanged
        ld a, [hl]
        inc [hl]
        add a, a
        ld hl, wChangedCells
        add a, l
        ld l, a
        ld [hl], b
        inc l
        ld [hl], c
        ret

DrawChanged:
        ld hl, wChanged
        ld a, [hl]
        and a
        ret z
        dec [hl]
        dec a
        add a, a
        ld hl, wChangedCells
        add a, l
        ld l, a
        ld b, [hl]
        inc l
        ld c, [hl]
        call FindCell
        ld a, [hl]
        push af
        ld a, b                 ; 64 * b + 2 * c is where it is, after the two lines above
        inc a
        ld h, 0
        ld l, a
        add hl, hl
        add hl, hl
        add hl, hl
        add hl, hl
        add hl, hl
        add hl, hl
        ld a, c
        add a, a
        add a, l
        ld l, a
        ld bc, vFirstMap
        ld a, [wScreen]
        and LCD_SECOND_MAP
        jr z, .shown
        ld bc, vSecondMap
.shown: add hl, bc
        pop af
        call DrawCell
        jr DrawChanged

; --- the line above the room

WriteStatus:
        ld a, 1
        ld [wStatusChanged], a
        ld a, [wState]
        ld de, Playing
        and a
        jr z, .copy
        ld de, Won
        dec a
        jr z, .copy
        ld de, Lost
.copy:  ld hl, wStatus
        ld b, SCREEN_COLUMNS
.tile:  ld a, [de]
        inc de
        ld [hl+], a
        dec b
        jr nz, .tile
        ld a, [wState]
        and a
        ret nz
        ld hl, wStatus + 1
        ld a, [wHearts]
        ld b, a
        inc b
.heart: dec b
        jr z, .rupees
        ld a, ICON_HEART
        ld [hl+], a
        jr .heart
.rupees:
        ld hl, wStatus + 10
        ld a, [wRupees]
        cp 10
        jr c, .ones
        sub 10
        ld [hl], FONT + 1
.ones:  inc hl
        add a, FONT
        ld [hl], a
        ld a, [wKey]
        and a
        ret z
        ld a, ICON_KEY
        ld [wStatus + 18], a
        ret

Playing:
        DB " ", ICON_NO_HEART, ICON_NO_HEART, ICON_NO_HEART, "     ", ICON_RUPEE, FONT, FONT
        DB "        "
Won:
        DB "YOU FOUND THE PEARL "
Lost:
        DB " THE CRABS GOT YOU  "
