/* dnn_trial.c - cuDNN's graphs and plans on a machine without a GPU: a program for spec/cuda/dnn_spec.lua.
 *
 *     gm_dnn_trial LIBRARY DRIVER DEVICE <problems
 *
 * LIBRARY: cuDNN's, or "-" for the usual one or the toolkit's. DRIVER: a library to be there as libcuda.so.1, or "-":
 * then graphs are checked, and plans are not built. DEVICE: cuDNN's JSON of a GPU.
 *
 * Each line of the input is a problem, "forward|backward DTYPE b h hk s t d causal|full apart|fused ARCH", and is
 * answered by a line: "ok ops N [engine N workspace N deterministic|varying graphs|no-graphs]", "refused WHY" (by us),
 * or "failed WHY" (by cuDNN). "fused": q, k and v are views of one tensor (b, s, h + 2 hk, d). "force " before a
 * problem asks cuDNN what we refuse. A line may also be a convolution (read_convolution). Status 3: there is no
 * cuDNN. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "../../kernels/cuda/dnn/convolution_graph.h"
#include "../../kernels/cuda/dnn/graph.h"

static gm_dnn_strides rows_of(int64_t rows, int64_t heads, int64_t size)
{
    return (gm_dnn_strides){rows * heads * size, heads * size, size};
}

static bool read_problem(const char *line, gm_dnn_problem *p)
{
    char      way[16], dtype[16], mask[16], layout[16];
    long long v[6];
    gm_dtype  t;
    int       arch;
    memset(p, 0, sizeof *p);
    if (sscanf(line, "%15s %15s %lld %lld %lld %lld %lld %lld %15s %15s %d", way, dtype, &v[0], &v[1], &v[2], &v[3],
               &v[4], &v[5], mask, layout, &arch) != 11)
        return false;
    if (!gm_dtype_parse(dtype, &t)) return false;
    p->b = v[0], p->h = v[1], p->hk = v[2], p->s = v[3], p->t = v[4], p->d = v[5];
    p->dtype = t;
    p->arch = arch;
    p->causal = !strcmp(mask, "causal");
    p->gradient = !strcmp(way, "backward");
    bool fused = !strcmp(layout, "fused");
    p->q = rows_of(p->s, fused ? p->h + 2 * p->hk : p->h, p->d);
    p->k = p->v = rows_of(p->t, fused ? p->h + 2 * p->hk : p->hk, p->d);
    p->o = rows_of(p->s, p->h, p->d);
    if (p->gradient) {
        p->g = p->dq = p->o;
        p->dk = p->dv = rows_of(p->t, p->hk, p->d);
    }
    return true;
}

/* A convolution: "conv result|input|weight DTYPE n c h w out kernel stride padding groups ARCH", square kernels. The
 * side may have "-last" behind it: all tensors have their channels last; or "-last-long": and the sum is long. */
static bool read_convolution(const char *line, gm_dnn_convolution *p)
{
    static const char *const sides[] = {"result", "input", "weight"};
    char                     side[24], dtype[16];
    long long                v[9];
    gm_dtype                 t;
    memset(p, 0, sizeof *p);
    if (sscanf(line, "conv %23s %15s %lld %lld %lld %lld %lld %lld %lld %lld %lld %d", side, dtype, &v[0], &v[1], &v[2],
               &v[3], &v[4], &v[5], &v[6], &v[7], &v[8], &p->arch) != 12)
        return false;
    p->long_sum = strstr(side, "-long") != NULL;
    for (int i = 0; i < 3; i++) p->channels_last[i] = strstr(side, "-last") != NULL;
    while (p->side < 3 && strncmp(side, sides[p->side], strlen(sides[p->side]))) p->side++;
    if (p->side == 3 || !gm_dtype_parse(dtype, &t)) return false;
    memcpy(p->x, (int64_t[]){v[0], v[1], v[2], v[3]}, sizeof p->x);
    memcpy(p->w, (int64_t[]){v[4], v[1] / v[8], v[5], v[5]}, sizeof p->w);
    memcpy(p->y, (int64_t[]){v[0], v[4], (v[2] + 2 * v[7] - v[5]) / v[6] + 1, (v[3] + 2 * v[7] - v[5]) / v[6] + 1},
           sizeof p->y);
    for (int d = 0; d < 2; d++) {
        p->stride[d] = v[6];
        p->low[d] = p->high[d] = v[7];
        p->dilation[d] = 1;
    }
    p->dtype = t;
    return true;
}

static gm_status answer(const gm_dnn_library *lib, const gm_dnn_writing *p, bool plans, const char *device)
{
    int         ops = 0;
    gm_dnn_plan plan = {.plan = NULL};
    GM_TRY(gm_dnn_check_graph(lib, p, device, &ops));
    if (!plans) {
        printf("ok ops %d\n", ops);
        return GM_OK;
    }
    GM_TRY(gm_dnn_plan_new(lib, p, NULL, device, &plan));
    printf("ok ops %d engine %lld workspace %lld %s %s\n", ops, (long long)plan.engine, (long long)plan.workspace,
           plan.deterministic ? "deterministic" : "varying", plan.graphs ? "graphs" : "no-graphs");
    gm_dnn_plan_close(&plan);
    return GM_OK;
}

/* The usual name is found where the system looks, the others where the toolkit of the build has it. */
static gm_status load_cudnn(const char *named, gm_dnn_library *lib)
{
    static const char *const usual[] = {"libcudnn_graph.so.9", GM_TOOLKIT "/lib/libcudnn_graph.so.9",
                                        GM_TOOLKIT "/lib64/libcudnn_graph.so.9"};
    gm_status                st = GM_EINVAL;
    if (strcmp(named, "-")) return gm_dnn_load(named, lib);
    for (int i = 0; i < 3 && st != GM_OK; i++) st = gm_dnn_load(usual[i], lib);
    return st;
}

int main(int argc, char **argv)
{
    gm_dnn_library lib;
    char           line[256];
    if (argc != 4) return fprintf(stderr, "gm_dnn_trial LIBRARY DRIVER|- DEVICE <problems\n"), 2;
    bool plans = strcmp(argv[2], "-") != 0;
    if (plans && !dlopen(argv[2], RTLD_NOW | RTLD_GLOBAL)) return fprintf(stderr, "%s\n", dlerror()), 1;
    if (load_cudnn(argv[1], &lib) != GM_OK) return fprintf(stderr, "%s\n", gm_last_error()), 3;
    while (fgets(line, sizeof line, stdin)) {
        gm_dnn_problem     p;
        gm_dnn_convolution c;
        const char        *why = NULL;
        bool               forced = !strncmp(line, "force ", 6), convolves = read_convolution(line + 6 * forced, &c);
        if (!convolves && !read_problem(line + 6 * forced, &p)) return fprintf(stderr, "what is: %s", line), 2;
        gm_dnn_writing how = convolves ? gm_dnn_of_convolution(&c) : gm_dnn_of_attention(&p);
        if (!forced && !(convolves ? gm_dnn_takes_convolution(&c, &why) : gm_dnn_takes(&p, &why)))
            printf("refused %s\n", why);
        else if (answer(&lib, &how, plans, argv[3]) != GM_OK) printf("failed %s\n", gm_last_error());
        fflush(stdout);
    }
    return 0;
}
