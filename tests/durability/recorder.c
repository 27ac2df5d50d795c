/* Notes what a process does to the files of a folder, in its order: what is written, cut off, synced
 * and removed. One step may fail. Loaded before the C library (LD_PRELOAD).
 *
 * RECORDED_FOLDER  the folder
 * RECORD           the file to append to
 * FAIL_STEP        the step that fails, and all after it (none)
 * FAIL_ERROR       with which error number
 *
 * A record is: a letter, the length of the name, the offset, the length of the content, each as eight
 * bytes in the order of this machine; then the name and the content.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static const char *folder;
static int record = -1;
static long steps, fail_step;
static int fail_error;

static ssize_t (*real_write)(int, const void *, size_t);
static ssize_t (*real_pwrite)(int, const void *, size_t, off64_t);
static int (*real_ftruncate)(int, off64_t);
static int (*real_fsync)(int);
static int (*real_fdatasync)(int);
static int (*real_unlink)(const char *);

static void prepare(void) {
    real_write = dlsym(RTLD_NEXT, "write");
    real_pwrite = dlsym(RTLD_NEXT, "pwrite64");
    real_ftruncate = dlsym(RTLD_NEXT, "ftruncate64");
    real_fsync = dlsym(RTLD_NEXT, "fsync");
    real_fdatasync = dlsym(RTLD_NEXT, "fdatasync");
    real_unlink = dlsym(RTLD_NEXT, "unlink");
    const char *file = getenv("RECORD");
    folder = getenv("RECORDED_FOLDER");
    if (folder && file) record = open(file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (getenv("FAIL_STEP")) fail_step = atol(getenv("FAIL_STEP"));
    if (getenv("FAIL_ERROR")) fail_error = atoi(getenv("FAIL_ERROR"));
}

/* The name of a path below the folder; nothing if it is elsewhere, or of no importance: an index of
 * the log is made anew by whoever comes. */
static const char *name_of_path(const char *path) {
    size_t length = folder ? strlen(folder) : 0;
    if (record < 0 || strncmp(path, folder, length) || path[length] != '/') return NULL;
    const char *name = path + length + 1;
    return strncmp(name, "objects.db", 10) || strstr(name, "-shm") ? NULL : name;
}

static const char *name_of(int fd, char *path) {
    char link[64];
    pthread_once(&once, prepare);
    if (record < 0 || fd == record) return NULL;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    if (length < 0) return NULL;
    path[length] = 0;
    return name_of_path(path);
}

static int fails(void) {
    steps++;
    if (!fail_step || steps < fail_step) return 0;
    errno = fail_error;
    return 1;
}

static void note(char what, const char *name, uint64_t offset, const void *content, uint64_t length) {
    uint64_t head[4] = {what, strlen(name), offset, length};
    struct iovec parts[3] = {
        {head, sizeof head}, {(void *)name, strlen(name)}, {(void *)content, content ? length : 0}};
    int before = errno;
    if (writev(record, parts, 3) < 0) abort();
    errno = before;
}

ssize_t pwrite64(int fd, const void *content, size_t length, off64_t offset) {
    char path[PATH_MAX];
    const char *name = name_of(fd, path);
    if (!name) return real_pwrite(fd, content, length, offset);
    pthread_mutex_lock(&turn);
    ssize_t done = fails() ? -1 : real_pwrite(fd, content, length, offset);
    if (done > 0) note('w', name, offset, content, done);
    pthread_mutex_unlock(&turn);
    return done;
}

ssize_t pwrite(int fd, const void *content, size_t length, off_t offset) {
    return pwrite64(fd, content, length, offset);
}

ssize_t write(int fd, const void *content, size_t length) {
    char path[PATH_MAX];
    const char *name = name_of(fd, path);
    if (!name) return real_write(fd, content, length);
    pthread_mutex_lock(&turn);
    off64_t offset = lseek64(fd, 0, SEEK_CUR);
    ssize_t done = fails() ? -1 : real_write(fd, content, length);
    if (done > 0) note('w', name, offset, content, done);
    pthread_mutex_unlock(&turn);
    return done;
}

int ftruncate64(int fd, off64_t length) {
    char path[PATH_MAX];
    const char *name = name_of(fd, path);
    if (!name) return real_ftruncate(fd, length);
    pthread_mutex_lock(&turn);
    int done = fails() ? -1 : real_ftruncate(fd, length);
    if (!done) note('t', name, length, NULL, 0);
    pthread_mutex_unlock(&turn);
    return done;
}

int ftruncate(int fd, off_t length) { return ftruncate64(fd, length); }

static int synced(int fd, int (*real)(int)) {
    char path[PATH_MAX];
    const char *name = name_of(fd, path);
    if (!name) return real(fd);
    pthread_mutex_lock(&turn);
    int done = fails() ? -1 : real(fd);
    if (!done) note('s', name, 0, NULL, 0);
    pthread_mutex_unlock(&turn);
    return done;
}

int fsync(int fd) {
    pthread_once(&once, prepare);
    return synced(fd, real_fsync);
}

int fdatasync(int fd) {
    pthread_once(&once, prepare);
    return synced(fd, real_fdatasync);
}

int unlink(const char *path) {
    pthread_once(&once, prepare);
    const char *name = path[0] == '/' ? name_of_path(path) : NULL;
    if (!name) return real_unlink(path);
    pthread_mutex_lock(&turn);
    int done = fails() ? -1 : real_unlink(path);
    if (!done) note('u', name, 0, NULL, 0);
    pthread_mutex_unlock(&turn);
    return done;
}
