/* nccl_trial.c - the real NCCL on a machine without a GPU, a program for spec/cuda/nccl_spec.lua: is every function
 * that we call there, is the version one that serves, does it make ids, and does it refuse a communicator without a
 * GPU with an error that we read as one?
 *
 *     gm_nccl_trial          "NCCL 22809 revoke ids differ refused: NCCL failed: ..."; status 3: there is no NCCL */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "../../kernels/cuda/nccl_library.h"

int main(void)
{
    gm_nccl_library lib;
    ncclUniqueId    one, two;
    ncclComm_t      comm = NULL;
    ncclConfig_t    config = NCCL_CONFIG_INITIALIZER;
    if (gm_nccl_load("libnccl.so.2", &lib) != GM_OK && gm_nccl_load(GM_TOOLKIT "/lib/libnccl.so.2", &lib) != GM_OK) {
        printf("%s\n", gm_last_error());
        return strstr(gm_last_error(), "there is no NCCL") ? 3 : 1;
    }
    bool ids = lib.ncclGetUniqueId(&one) == ncclSuccess && lib.ncclGetUniqueId(&two) == ncclSuccess;
    config.blocking = 0;
    ncclResult_t r = lib.ncclCommInitRankConfig(&comm, 1, one, 0, &config);
    gm_nccl_failed(&lib, NULL, r, __FILE__, __LINE__, "ncclCommInitRankConfig");
    printf("NCCL %d %s ids %s %s: %s\n", lib.version, lib.ncclCommRevoke ? "revoke" : "abort",
           ids && memcmp(&one, &two, sizeof one) ? "differ" : "do not differ",
           r == ncclSuccess || r == ncclInProgress ? "made" : "refused", gm_last_error());
    return 0;
}
