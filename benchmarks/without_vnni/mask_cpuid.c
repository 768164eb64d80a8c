/* Answers `cpuid` as a processor without AVX-512 and VNNI would. `patch.py` puts a breakpoint where ONNX Runtime asks;
   this library, preloaded, catches it, asks for real and takes the bits away. */
#define _GNU_SOURCE
#include <cpuid.h>
#include <signal.h>
#include <ucontext.h>

/* leaf 7, subleaf 0: AVX-512 F, DQ, IFMA, CD, BW, VL; VBMI, VBMI2, VNNI, BITALG, VPOPCNTDQ; VP2INTERSECT, FP16 */
#define EBX_7_0 (1u << 16 | 1u << 17 | 1u << 21 | 1u << 28 | 1u << 30 | 1u << 31)
#define ECX_7_0 (1u << 1 | 1u << 6 | 1u << 11 | 1u << 12 | 1u << 14)
#define EDX_7_0 (1u << 8 | 1u << 23 | 1u << 22 | 1u << 24 | 1u << 25) /* and AMX */
/* leaf 7, subleaf 1: AVX-VNNI, AVX512-BF16, AMX-FP16; AVX-VNNI-INT8, AVX-VNNI-INT16 */
#define EAX_7_1 (1u << 4 | 1u << 5 | 1u << 21)
#define EDX_7_1 (1u << 4 | 1u << 10)

static void answer(int signal_number, siginfo_t *info, void *context) {
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    unsigned leaf = registers[REG_RAX], subleaf = registers[REG_RCX], a, b, c, d;
    (void)signal_number, (void)info;
    __cpuid_count(leaf, subleaf, a, b, c, d);
    if (leaf == 7 && subleaf == 0) b &= ~EBX_7_0, c &= ~ECX_7_0, d &= ~EDX_7_0;
    if (leaf == 7 && subleaf == 1) a &= ~EAX_7_1, d &= ~EDX_7_1;
    registers[REG_RAX] = a, registers[REG_RBX] = b, registers[REG_RCX] = c, registers[REG_RDX] = d;
}

__attribute__((constructor)) static void install(void) {
    struct sigaction action = {0};
    action.sa_sigaction = answer;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGTRAP, &action, 0);
}
