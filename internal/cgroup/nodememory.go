package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
)

// NodeMemory is how much reclaimable memory a cgroup has on one memory node, in bytes.
type NodeMemory struct {
	Anonymous int64 // anonymous memory, shared memory and tmpfs
	PageCache int64
}

// NodeMemory reads how much reclaimable memory a cgroup of version 2 and the cgroups below it have, by the id of the
// memory node (since Linux 5.10).
func (t *Tree) NodeMemory(dir string) (map[int]NodeMemory, error) {
	if !IsDir(dir) {
		return nil, &Error{Op: "read", Path: dir, Err: errors.New("not the directory of a cgroup")}
	}
	file := t.path("memory", dir, "memory.numa_stat")
	text, err := t.read(file)
	if err != nil {
		return nil, err
	}
	of, err := parseNodeMemory(text)
	if err != nil {
		return nil, &Error{Op: "read", Path: file, Err: err}
	}
	return of, nil
}

// parseNodeMemory parses lines such as "inactive_anon N0=4096 N1=0". For each memory node, the result is the sum of the
// sizes of the kernel's active and inactive lists. Memory that the kernel cannot reclaim, such as locked memory, is not
// in these lists.
func parseNodeMemory(text string) (map[int]NodeMemory, error) {
	of, found := map[int]NodeMemory{}, 0
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) == 0 || f[0] != "inactive_anon" && f[0] != "active_anon" && f[0] != "inactive_file" && f[0] != "active_file" {
			continue
		}
		found++
		for _, entry := range f[1:] {
			name, amount, _ := strings.Cut(strings.TrimPrefix(entry, "N"), "=")
			node, err := strconv.Atoi(name)
			n, errN := strconv.ParseInt(amount, 10, 64)
			if err = errors.Join(err, errN); err != nil {
				return nil, fmt.Errorf("%s: %q is not of the form N<node>=<bytes>", f[0], shorten(entry))
			}
			m := of[node]
			if strings.HasSuffix(f[0], "_anon") {
				m.Anonymous += n
			} else {
				m.PageCache += n
			}
			of[node] = m
		}
	}
	if found != 4 {
		return nil, errors.New("the file lacks a line inactive_anon, active_anon, inactive_file or active_file")
	}
	return of, nil
}

// MaySwap reports whether memory.swap.max lets the kernel swap memory of a cgroup of version 2. MaySwap does not check
// whether the node has swap.
func (t *Tree) MaySwap(dir string) (bool, error) {
	if !IsDir(dir) {
		return false, &Error{Op: "read", Path: dir, Err: errors.New("not the directory of a cgroup")}
	}
	text, err := t.read(t.path("memory", dir, "memory.swap.max"))
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil // a kernel without swap accounting does not limit swap
	}
	return text != "0", err
}

// ReclaimAnonymous asks the kernel to reclaim about the given number of bytes of anonymous memory of a cgroup of
// version 2, and waits for the result. The error is EAGAIN if the kernel reclaimed less. It is EINVAL if the kernel
// cannot reclaim anonymous memory only (before Linux 6.16).
func (t *Tree) ReclaimAnonymous(dir string, bytes int64) error {
	if !IsDir(dir) {
		return &Error{Op: "write", Path: dir, Err: errors.New("not the directory of a cgroup")}
	}
	return t.write(t.path("memory", dir, "memory.reclaim"), strconv.FormatInt(bytes, 10)+" swappiness=max")
}
