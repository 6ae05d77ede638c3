// Reads a part of a file past the system's cache by several threads, into huge pages, and prints bytes a second.
//
// usage: direct_reads FILE FIRST_BYTE BYTES THREADS BYTES_OF_A_READ
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { HUGE_PAGE = 2 << 20, BUFFERS = 8, MOST_THREADS = 64 };

static atomic_long next_place;
static long end, chunk;
static int file;

static void* read_chunks(void* buffer) {
    for (long number = 0;; number++) {
        long place = atomic_fetch_add(&next_place, chunk);
        if (place >= end) return NULL;
        if (pread(file, (char*)buffer + number % BUFFERS * chunk, chunk, place) != chunk) {
            perror("a read was short");
            exit(1);
        }
    }
}

int main(int count, char** arguments) {
    if (count != 6) return fprintf(stderr, "usage: direct_reads FILE FIRST_BYTE BYTES THREADS BYTES_OF_A_READ\n"), 2;
    file = open(arguments[1], O_RDONLY | O_DIRECT);
    if (file < 0) return perror(arguments[1]), 1;
    long first = atol(arguments[2]), threads = atol(arguments[4]);
    chunk = atol(arguments[5]);
    long bytes = atol(arguments[3]) / chunk * chunk;
    if (threads < 1 || threads > MOST_THREADS || bytes < chunk) return fprintf(stderr, "1 to 64 threads, one read or more\n"), 2;
    end = first + bytes;
    next_place = first;
    char* buffers[MOST_THREADS];
    for (long i = 0; i < threads; i++) {
        size_t size = BUFFERS * chunk + HUGE_PAGE;
        char* memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED) return perror("no memory"), 1;
        madvise(memory, size, MADV_HUGEPAGE);
        for (size_t at = 0; at < size; at += 4096) memory[at] = 1;
        buffers[i] = (char*)(((size_t)memory + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE);
    }
    struct timespec begun, ended;
    pthread_t handles[MOST_THREADS];
    clock_gettime(CLOCK_MONOTONIC, &begun);
    for (long i = 0; i < threads; i++) pthread_create(&handles[i], NULL, read_chunks, buffers[i]);
    for (long i = 0; i < threads; i++) pthread_join(handles[i], NULL);
    clock_gettime(CLOCK_MONOTONIC, &ended);
    printf("%.0f\n", bytes / (ended.tv_sec - begun.tv_sec + (ended.tv_nsec - begun.tv_nsec) * 1e-9));
    return 0;
}
