; Variables. What stands behind ;; makes the RAM map (shoal.envs.gameboy.build):
;
;       ;; name: meaning | how it is put into observations
;
; "scale 9" is a number from 0 to 9, "one_hot 6" one of six, "bits 6" six flags, "hide" not at all.

        SECTION RAM, $C000

wRestart:       DS 1    ;; restart: set it to 1 and the game begins anew, from seed | hide
wSeed:          DS 2    ;; seed: decides where things are and what crabs do; any number but 0 | hide

wGame:                  ; everything from here to wGameEnd is cleared for a new game
wState:         DS 1    ;; state: 0 playing, 1 won, 2 lost; then only START does something | hide
wRoom:          DS 1    ;; room: 0 1 2 above, 3 4 5 below | one_hot 6
wX:             DS 1    ;; x: the hero's cell from the left | one_hot 10
wY:             DS 1    ;; y: the hero's cell from the top | one_hot 8
wFacing:        DS 1    ;; facing: 0 up, 1 down, 2 left, 3 right | one_hot 4
wHearts:        DS 1    ;; hearts: at 0 the game is lost | scale 3
wRupees:        DS 1    ;; rupees: collected so far, of 12 | scale 12
wKey:           DS 1    ;; key: 1 while the hero has it | scale 1
wDoor:          DS 1    ;; door: 1 once the gate is open | scale 1
wRooms:         DS 1    ;; rooms: one bit for each room that the hero has been in | bits 6
wKeyRoom:       DS 1    ;; key_room: where the key lies, 6 once it is taken | one_hot 7
wDamage:        DS 1    ;; damage: hearts lost so far | hide
wFoes:          DS 1    ;; foes: crabs driven away so far | hide
wSafe:          DS 1    ;; safe: frames in which nothing can hurt the hero | scale 64
wShield:        DS 1    ;; shield: 1 in a bubble, where nothing hurts | hide
wFork:          DS 1    ;; fork: frames for which the fork is still out | hide
wMoving:        DS 1    ;; moving: frames until the hero is on its cell | scale 4
wPx:            DS 1    ;; pixel_x: the hero's left edge | hide
wPy:            DS 1    ;; pixel_y: the hero's upper edge, from the top of the room | hide

wThings:                ; in this room: whether it is there, and its cell
wRupeeA:        DS 1    ;; rupee_a_here: 1 if the first rupee lies in this room | scale 1
wRupeeAX:       DS 1    ;; rupee_a_x: its cell from the left | hide
wRupeeAY:       DS 1    ;; rupee_a_y: from the top | hide
wRupeeB:        DS 1    ;; rupee_b_here: 1 if the second rupee lies in this room | scale 1
wRupeeBX:       DS 1    ;; rupee_b_x: its cell from the left | hide
wRupeeBY:       DS 1    ;; rupee_b_y: from the top | hide
wKeyHere:       DS 1    ;; key_here: 1 if the key lies in this room | scale 1
wKeyX:          DS 1    ;; key_x: its cell from the left | hide
wKeyY:          DS 1    ;; key_y: from the top | hide
wPearlHere:     DS 1    ;; pearl_here: 1 if the pearl lies in this room | scale 1
wPearlX:        DS 1    ;; pearl_x: its cell from the left | hide
wPearlY:        DS 1    ;; pearl_y: from the top | hide
wCrabHere:      DS 1    ;; enemy_here: 1 if a crab is in this room | scale 1
wCrabX:         DS 1    ;; enemy_x: its cell, or the one it walks to, from the left | hide
wCrabY:         DS 1    ;; enemy_y: from the top | hide
wCrabPx:        DS 1    ;; enemy_pixel_x: its left edge | hide
wCrabPy:        DS 1    ;; enemy_pixel_y: its upper edge | hide
wCrabFacing:    DS 1    ;; enemy_facing: as facing | hide
wCrabStep:      DS 1    ;; enemy_step: frames until it thinks again, of which the last 8 are rest | scale 16

wRadar:                 ; the same things as the hero sees them; 9 and 7 also where there is none
wRupeeADx:      DS 1    ;; rupee_a_right: cells from the hero to the right, and 9 more | scale 18
wRupeeADy:      DS 1    ;; rupee_a_down: cells from the hero downwards, and 7 more | scale 14
wRupeeBDx:      DS 1    ;; rupee_b_right: likewise | scale 18
wRupeeBDy:      DS 1    ;; rupee_b_down: likewise | scale 14
wKeyDx:         DS 1    ;; key_right: likewise | scale 18
wKeyDy:         DS 1    ;; key_down: likewise | scale 14
wPearlDx:       DS 1    ;; pearl_right: likewise | scale 18
wPearlDy:       DS 1    ;; pearl_down: likewise | scale 14
wCrabDx:        DS 1    ;; enemy_right: likewise | scale 18
wCrabDy:        DS 1    ;; enemy_down: likewise | scale 14

wWalls:         DS 1    ;; walls: whether something is in the way up, down, left, right | bits 4
wFresh:         DS 1    ;; fresh: whether the cell there has not been stepped on yet | bits 4
wExplored:      DS 2    ;; explored: cells that have been stepped on, of all rooms | hide
wSeenHere:      DS 2    ; the part of wSeen for this room
wLookAgain:     DS 1    ; not 0: somebody or something has changed cells

wRng:           DS 2    ;; rng: the state of chance | hide
wSpots:         DS 6    ;; spots: for each room, the spot that its things are counted from | hide
wLeft:          DS 6    ;; left: for each room, what is left in it (bits as in maps.asm) | hide
wFreeze:        DS 1    ;; freeze: frames until a new room is on the screen | hide
wFrame:         DS 2    ;; frame: frames since the game began, by which crabs move their legs | hide
wGameEnd:

wDraw:          DS 1    ; parts of the room that are still to be drawn, of 3
wDrawFrom:      DS 1    ; low byte of the next cell
wDrawTo:        DS 2    ; where it goes
wScreen:        DS 1    ; what the screen is told, rLCDC
wChanged:       DS 1    ; cells of wMap that are to be drawn again, at most 2
wChangedCells:  DS 4    ; y and x of each
wStatusChanged: DS 1    ; 1: draw the line above the room again
wStatus:        DS SCREEN_COLUMNS

        SECTION RAM, $C080
wMap:           DS ROOM_CELLS   ;; cells: the room, ten cells a row; kinds as in maps.asm | hide

        SECTION RAM, $C100
wSprites:       DS 160

        SECTION RAM, $C200
wSeen:          DS NUM_ROOMS * ROOM_CELLS       ; 1 for each cell that has been stepped on

        SECTION RAM, $FF80
hCopySprites:   DS 16   ; the routine, which must not be in ROM while it runs
hPad:           DS 1    ; buttons that are held
hAtTop:         DS 1    ; 1: line 0 has begun
hBlank:         DS 1    ; 1: the vertical blank has begun
hCount:         DS 1
