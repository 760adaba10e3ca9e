/* any_driver.c - a CUDA driver that says yes: libcuda.so.1 for dnn_trial.c, on machines without a GPU. cuDNN compiles
 * and loads the kernels of a plan when it builds one, and needs no more of a driver than that these functions exist and
 * succeed. It is of no other use: nothing runs. */
#define YES(name)   \
    int name(void); \
    int name(void) { return 0; }
YES(cuCtxGetCurrent)
YES(cuCtxGetDevice) YES(cuCtxGetLimit) YES(cuCtxPopCurrent) YES(cuCtxPushCurrent) YES(cuDeviceGetAttribute)
    YES(cuDevicePrimaryCtxRelease) YES(cuDevicePrimaryCtxReset) YES(cuDevicePrimaryCtxRetain) YES(cuFuncGetAttribute)
        YES(cuFuncSetAttribute) YES(cuKernelGetAttribute) YES(cuKernelSetAttribute) YES(cuLaunchCooperativeKernel)
            YES(cuLaunchKernel) YES(cuLaunchKernelEx) YES(cuLibraryLoadData) YES(cuLibraryLoadFromFile)
                YES(cuLibraryUnload) YES(cuLinkAddData) YES(cuLinkAddData_v2) YES(cuLinkAddFile_v2) YES(cuLinkComplete)
                    YES(cuLinkCreate) YES(cuLinkCreate_v2) YES(cuLinkDestroy) YES(cuMemcpyDtoH_v2)
                        YES(cuModuleGetGlobal_v2) YES(cuModuleLoadData) YES(cuModuleLoadDataEx)
                            YES(cuModuleLoadFatBinary) YES(cuModuleUnload)
                                YES(cuOccupancyMaxActiveBlocksPerMultiprocessor) YES(cuOccupancyMaxPotentialClusterSize)
                                    YES(cuStreamGetCtx) YES(cuStreamSynchronize) YES(cuTensorMapEncodeTiled) YES(cuInit)

    /* Those that answer with more than yes. */
    int cuDriverGetVersion(int *version);
int cuDeviceGetCount(int *count);
int cuDeviceGet(int *device, int ordinal);
int cuGetErrorName(int error, const char **name);
int cuGetErrorString(int error, const char **words);
int cuGetExportTable(const void **table, const void *id);
int cuLibraryGetKernel(void **kernel, void *library, const char *name);
int cuKernelGetFunction(void **function, void *kernel);
int cuModuleGetFunction(void **function, void *module, const char *name);

static char kernel_of_all;

int cuDriverGetVersion(int *version) { return *version = 13000, 0; }
int cuDeviceGetCount(int *count) { return *count = 1, 0; }
int cuDeviceGet(int *device, int ordinal) { return *device = ordinal, 0; }
int cuGetErrorName(int error, const char **name) { return (void)error, *name = "none", 0; }
int cuGetErrorString(int error, const char **words) { return (void)error, *words = "none", 0; }
int cuGetExportTable(const void **table, const void *id) { return (void)table, (void)id, 500; }
int cuLibraryGetKernel(void **kernel, void *library, const char *name)
{
    return (void)library, (void)name, *kernel = &kernel_of_all, 0;
}
int cuKernelGetFunction(void **function, void *kernel) { return *function = kernel, 0; }
int cuModuleGetFunction(void **function, void *module, const char *name)
{
    return (void)module, (void)name, *function = &kernel_of_all, 0;
}
