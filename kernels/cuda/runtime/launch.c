/* launch.c - finds kernels by name and launches them (cuda.h). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "driver.h"

#define SHARED_ALWAYS ((size_t)48 << 10) /* bytes of shared memory that no kernel needs to be told of */
#define WAVES         8                  /* gm_cuda_over: blocks a multiprocessor gets, at most */

static uint32_t hash_of(const char *name)
{
    uint32_t h = 2166136261u;
    for (; *name; name++) h = (h ^ (unsigned char)*name) * 16777619u;
    return h;
}

/* CUDA_ERROR_NOT_FOUND: no module has it. */
static CUresult search(const gm_cuda *cu, const char *name, CUfunction *out)
{
    CUresult r = CUDA_ERROR_NOT_FOUND;
    for (int i = 0; i < cu->n_modules && r == CUDA_ERROR_NOT_FOUND; i++)
        r = cu->driver->cuModuleGetFunction(out, cu->modules[i], name);
    return r;
}

static gm_status look_up(const gm_cuda *cu, const char *name, CUfunction *out)
{
    CUresult r = search(cu, name, out);
    if (r == CUDA_ERROR_NOT_FOUND) return GM_FAIL(GM_EINVAL, "there is no kernel '%s' in this build", name);
    return r == CUDA_SUCCESS ? GM_OK : gm_cuda_failed(r, __FILE__, __LINE__, name);
}

bool gm_cuda_has(gm_device *dev, const char *kernel)
{
    gm_cuda   *cu;
    CUfunction function;
    return gm_cuda_enter(dev, &cu) == GM_OK && search(cu, kernel, &function) == CUDA_SUCCESS;
}

/* The kernel's slot of the table; fills it the first time. */
static gm_status find(gm_cuda *cu, const char *name, struct gm_cuda_function **out)
{
    uint32_t i = hash_of(name) % GM_CUDA_FUNCTIONS, tries = 0;
    for (; cu->functions[i].name; i = (i + 1) % GM_CUDA_FUNCTIONS) {
        *out = &cu->functions[i];
        if (!strcmp((*out)->name, name)) return GM_OK;
        if (++tries == GM_CUDA_FUNCTIONS - 1)
            return GM_FAIL(GM_EINVAL, "more than %d kernels: raise GM_CUDA_FUNCTIONS", GM_CUDA_FUNCTIONS);
    }
    CUfunction function;
    size_t     offset, size;
    GM_TRY(look_up(cu, name, &function));
    GM_CU(cu->driver, cuFuncGetParamInfo(function, 0, &offset, &size));
    char *copy = strdup(name);
    if (!copy) return GM_FAIL(GM_ENOMEM, "no memory for the name of a kernel");
    cu->functions[i] = (struct gm_cuda_function){copy, function, SHARED_ALWAYS, size};
    *out = &cu->functions[i];
    return GM_OK;
}

static gm_status allow_shared(gm_cuda *cu, struct gm_cuda_function *f, size_t bytes)
{
    if (bytes <= f->shared) return GM_OK;
    if (bytes > (size_t)cu->shared_most)
        return GM_FAIL(GM_EINVAL, "%s asks for %zu bytes of shared memory, this GPU has %d for a block", f->name, bytes,
                       cu->shared_most);
    GM_CU(cu->driver,
          cuFuncSetAttribute(f->function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, cu->shared_most));
    f->shared = (size_t)cu->shared_most;
    return GM_OK;
}

static bool is_possible(const gm_cuda_grid *g)
{
    return g->x <= INT32_MAX && g->y >= 0 && g->y <= 65535 && g->z >= 0 && g->z <= 65535 && g->block >= 32 &&
           g->block <= 1024 && g->block % 32 == 0;
}

gm_status gm_cuda_launch(gm_device *dev, const char *kernel, gm_cuda_grid g, const void *args, size_t size)
{
    gm_cuda                 *cu;
    struct gm_cuda_function *f = NULL;
    if (g.x <= 0) return GM_OK;
    if (!is_possible(&g))
        return GM_FAIL(GM_EINVAL, "%s: no grid of (%lld, %d, %d) blocks of %d threads", kernel, (long long)g.x, g.y,
                       g.z, g.block);
    GM_TRY(gm_cuda_enter(dev, &cu));
    GM_TRY(find(cu, kernel, &f));
    if (size != f->args) return GM_FAIL(GM_EINVAL, "%s takes %zu bytes of arguments, not %zu", kernel, f->args, size);
    GM_TRY(allow_shared(cu, f, g.shared));
    void    *params[] = {(void *)(uintptr_t)args};
    CUresult r = cu->driver->cuLaunchKernel(f->function, (unsigned)g.x, g.y ? (unsigned)g.y : 1,
                                            g.z ? (unsigned)g.z : 1, (unsigned)g.block, 1, 1, (unsigned)g.shared,
                                            cu->launches, params, NULL);
    if (r == CUDA_SUCCESS) return GM_OK;
    char what[160];
    snprintf(what, sizeof what, "the launch of %.80s, (%lld, %d, %d) blocks of %d", kernel, (long long)g.x, g.y, g.z,
             g.block);
    return gm_cuda_failed(r, __FILE__, __LINE__, what);
}

const char *gm_cuda_name(char *buf, const char *base, gm_dtype t)
{
    snprintf(buf, GM_CUDA_NAME, "%s_%s", base, gm_dtype_name(t));
    return buf;
}

int    gm_cuda_multiprocessors(const gm_device *dev) { return gm_cuda_of(dev)->multiprocessors; }
size_t gm_cuda_shared_most(const gm_device *dev) { return (size_t)gm_cuda_of(dev)->shared_most; }

gm_cuda_grid gm_cuda_over(const gm_device *dev, int64_t n, int each, int block)
{
    int64_t blocks = (n + (int64_t)each * block - 1) / ((int64_t)each * block);
    int64_t most = (int64_t)gm_cuda_multiprocessors(dev) * WAVES;
    return (gm_cuda_grid){.x = blocks < most ? blocks : most, .block = block};
}
