/* cuda_queues_test.c - what goes to another queue of a GPU (launch_on of kernels/queues.h), on the emulated driver: it
 * runs a stream when something waits for it, and another stream only for an event. So what was queued in one shows. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <unistd.h>

#include "../../kernels/queues.h"
#include "unit.h"

/* The emulation's libraries lie beside this program (spec/cuda/CMakeLists.txt). false: they are not there. */
static bool emulated(void)
{
    char    path[4096];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 64);
    if (n <= 0) return false;
    path[n] = 0;
    strcpy(strrchr(path, '/'), "/emulation/libgm_fake_cuda.so");
    if (access(path, R_OK)) return false;
    setenv("GANYMEDE_CUDA_DRIVER", path, 1);
    strcpy(strrchr(path, '/'), "/libgm_fake_cublas.so");
    setenv("GANYMEDE_CUDA_BLAS", path, 1);
    return true;
}

static int64_t first_of(gm_device *dev, const gm_tensor *t)
{
    int64_t x = 0;
    OK(gm_device_read(dev, &x, gm_tensor_data(t), sizeof x));
    return x;
}

static void write_first(gm_device *dev, const gm_tensor *t, int64_t x)
{
    OK(gm_device_write(dev, gm_tensor_data(t), &x, sizeof x));
    OK(gm_device_synchronize(dev));
}

/* A copy within the device is work of the queue that kernels go to: the device's own work does not wait for it, until a
 * ticket says so. */
void gm_test_cuda_launch_on(void **state)
{
    gm_device *dev = NULL;
    gm_tensor *from = NULL, *to = NULL;
    gm_queue  *queue = NULL;
    gm_ticket *ticket = NULL;
    (void)state;
    if (!emulated()) skip();
    OK(gm_device_new("cuda", 1, &dev));
    const gm_queues *queues = dev->backend->queues;
    OK(gm_tensor_new(dev, GM_I64, 1, (int64_t[]){4}, &from));
    OK(gm_tensor_new(dev, GM_I64, 1, (int64_t[]){4}, &to));
    write_first(dev, from, 7);
    write_first(dev, to, 5);
    OK(queues->open(dev, &queue));
    OK(queues->enter(dev, &ticket));
    OK(queues->launch_on(dev, queue, ticket));
    OK(gm_device_copy(dev, gm_tensor_data(to), gm_tensor_data(from), sizeof(int64_t)));
    OK(queues->launch_on(dev, NULL, NULL));
    OK(queues->leave(queue, ticket));
    assert_int_equal(first_of(dev, to), 5);
    OK(queues->order(dev, ticket));
    assert_int_equal(first_of(dev, to), 7);
    queues->give(dev, ticket);
    queues->close(queue);
    gm_tensor_release(from);
    gm_tensor_release(to);
    gm_device_free(dev);
}
