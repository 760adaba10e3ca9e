/* files_test.c - folders of jobs: only those that a supervisor made are removed, and in them only what jobs make. */
#include "../../host/files/files.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "unit.h"

static char base[64];

static const char *in(const char *name)
{
    static char path[4][200];
    static int  next;
    char       *p = path[next = (next + 1) % 4];
    snprintf(p, sizeof path[0], "%s/%s", base, name);
    return p;
}

static void touch(const char *name)
{
    int fd = open(in(name), O_WRONLY | O_CREAT, 0600);
    assert_true(fd >= 0);
    close(fd);
}

/* A folder with what jobs make, and `other`. */
static void make(const char *folder, mode_t mode)
{
    char name[100];
    assert_int_equal(mkdir(in(folder), 0700), 0);
    for (const char **n = (const char *[]){"supervisor", "vader_segment.vm.0.1", NULL}; *n; n++) {
        snprintf(name, sizeof name, "%s/%s", folder, *n);
        touch(name);
    }
    snprintf(name, sizeof name, "%s/ompi.vm.0", folder);
    assert_int_equal(mkdir(in(name), 0700), 0);
    assert_int_equal(chmod(in(folder), mode), 0);
}

static bool is_there(const char *name) { return !access(in(name), F_OK); }

void gm_test_job_folders(void **state)
{
    (void)state;
    snprintf(base, sizeof base, "/tmp/gm-files-XXXXXX");
    assert_non_null(mkdtemp(base));
    make("ganymede-a1b2c3", 0700);
    gm_remove_job_folder(in("ganymede-a1b2c3"));
    assert_false(is_there("ganymede-a1b2c3"));
    make("ganymede-a1b2c3", 0700);
    touch("ganymede-a1b2c3/thesis.tex");
    gm_remove_job_folder(in("ganymede-a1b2c3"));
    assert_true(is_there("ganymede-a1b2c3/thesis.tex"));
    assert_false(is_there("ganymede-a1b2c3/ompi.vm.0"));
    make("ganymede-project", 0700); /* seven letters: no mkdtemp made it */
    make("home", 0700);
    make("ganymede-d4e5f6", 0755); /* others may look into it */
    assert_int_equal(symlink("home", in("ganymede-linked")), 0);
    for (const char **n = (const char *[]){"ganymede-project", "home", "ganymede-d4e5f6", "ganymede-linked", NULL}; *n;
         n++)
        gm_remove_job_folder(in(*n));
    assert_true(is_there("ganymede-project/supervisor") && is_there("home/supervisor") &&
                is_there("ganymede-d4e5f6/supervisor"));
    gm_remove_tree(base);
}
