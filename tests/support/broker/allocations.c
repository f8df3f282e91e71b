/* Preloaded into a broker: counts what it allocates, into a file that the test maps too. For glibc. */
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *old, size_t size);

static unsigned long before_the_file;
static unsigned long *counter = &before_the_file;

__attribute__((constructor)) static void open_counter(void) {
    const char *path = getenv("FLINT_TEST_ALLOCATIONS");
    int file = path ? open(path, O_RDWR) : -1;
    if (file >= 0) {
        void *mapped = mmap(NULL, sizeof *counter, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        if (mapped != MAP_FAILED)
            counter = mapped;
        close(file);
    }
}

void *malloc(size_t size) {
    __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED);
    return __libc_malloc(size);
}

void *calloc(size_t count, size_t size) {
    __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED);
    return __libc_calloc(count, size);
}

void *realloc(void *old, size_t size) {
    __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED);
    return __libc_realloc(old, size);
}
