@ Functions whose cycles on a Cortex-M4 are counted by hand in test_cycles.py, from Arm's Technical Reference Manual.
@ r1 to r3 hold addresses of RAM, r5 is 8, the word at r1 holds r1 itself.
.syntax unified
.cpu cortex-m4
.fpu fpv4-sp-d16
.thumb
.text
.word 0x20004000
.word reset

.macro function name
.balign 4
.global \name
.type \name, %function
.thumb_func
\name:
.endm

function reset
    ldr r0, =0xe000ed88         @ CPACR: the FPU is off at reset
    ldr r1, [r0]
    orr r1, r1, #0x00f00000
    str r1, [r0]
    dsb
    isb
    ldr r1, =0x20000000
    str r1, [r1]
    add r2, r1, #64
    add r3, r1, #128
    movs r5, #8
    bl CALLED
    movs r0, #0x18              @ semihosting: SYS_EXIT, done
    ldr r1, =0x20026
    bkpt 0xab
    .ltorg

function data_processing
    mov r0, r5
    add.w r0, r0, r5, lsl #3
    eors r0, r5
    sxtb16 r0, r0
    usat r0, #8, r0
    bx lr

function three_loads
    ldr r0, [r1, r5]
    ldr r1, [r2]
    ldr r2, [r3, #4]
    bx lr

function load_and_use
    ldr r0, [r1]
    add r0, r0, #1
    ldrsb r0, [r1, #1]
    bx lr

function load_and_store
    ldr r0, [r1, r5]
    str r0, [r3, #20]
    bx lr

function load_and_store_indexed
    ldr r0, [r1, r5]
    str r0, [r3, r5]
    bx lr

function store_indexed_and_load
    str r0, [r3, r5]
    ldr r0, [r3]
    bx lr

function pointer
    ldr r4, [r1]
    ldr r0, [r4]
    bx lr

function computed_address
    add r4, r1, #4
    ldr r0, [r4]
    bx lr

function base_update
    ldr r0, [r3], #4
    ldr r0, [r3], #4
    bx lr

function several_words
    push {r4, r6, r7}
    ldmia r1, {r4, r6, r7, r12}
    ldrd r6, r7, [r2]
    strd r6, r7, [r2], #8
    stmia r3!, {r6, r7}
    pop {r4, r6, r7}
    bx lr

function multiplications
    mul r0, r5, r5
    smlad r0, r5, r5, r0
    mla r0, r5, r5, r0
    smull r0, r4, r5, r5
    smlal r0, r4, r5, r5
    udiv r0, r5, r5
    bx lr

function floats
    vldr s0, [r1, #4]
    vmov s1, r5
    vmov s2, s3, r5, r5
    vmul.f32 s4, s1, s2
    vadd.f32 s5, s4, s1
    vcvt.s32.f32 s6, s1
    vmla.f32 s7, s1, s2
    vdiv.f32 s8, s1, s2
    vldmia r2, {s9-s12}
    vstr s1, [r3]
    bx lr

function floats_beside_integers
    vldr s0, [r1, #4]
    vldr s1, [r2]
    vfma.f32 s2, s0, s1
    add r0, r5, #1
    adds r0, r0, r5
    vfma.f32 s2, s0, s1
    vadd.f32 s3, s2, s1
    bx lr

function loop
    movs r0, #10
1:  subs r0, #1
    bne 1b
    bx lr

function straddling
    movs r0, #10
1:  subs.w r0, r0, #1
    bne 1b
    bx lr

function unaligned
    ldr r0, [r1, #1]
    ldrh r0, [r1, #3]
    ldr r0, [r1, #2]
    bx lr

function conditional
    cmp r5, #8
    ite eq
    moveq r0, #1
    movne r0, #2
    cbz r5, 1f
    bne 1f
1:  bx lr

function calls
    push {r4, lr}
    bl loop
    bl multiplications
    bl loop
    pop {r4, pc}

@ code of Armv6-M, which every Cortex-M runs; the cycles of each are in test_cycles.py
function small
    push {r4, lr}
    ldr r0, [r1]
    ldrb r0, [r1, #1]
    str r0, [r3]
    ldmia r2!, {r0, r4}
    muls r0, r5
    uxtb r4, r0
    bl loop
    b 1f
    nop
1:  pop {r4, pc}

function multiplications_of_an_m3
    mul r0, r5, r5
    mla r0, r5, r5, r0
    smull r0, r4, r5, r5
    smlal r0, r4, r5, r5
    udiv r0, r5, r5
    bx lr

@ 64 words of "flash" read twice, by a loop whose code begins a line of 32 bytes
.balign 32
function reads_flash
    movs r4, #2
2:  adr r0, data
    movs r2, #64
1:  ldr r1, [r0], #4
    subs r2, #1
    bne 1b
    subs r4, #1
    bne 2b
    bx lr
.balign 32
data:
    .space 256

@ QEMU takes the halfword that it looks ahead, at the end of a page, for part of the instruction before.
function crosses_a_page
    b.w 1f
    .balign 1024
    .space 1020
1:  adds r0, #1
    add.w r0, r0, #1
    bx lr
