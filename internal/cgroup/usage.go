package cgroup

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Usage reads the CPU time that a cgroup has used, and its memory without page cache, which the
// kernel can free only by swapping or killing.
func (t *Tree) Usage(dir string) (cpu time.Duration, bytes int64, err error) {
	if !IsDir(dir) {
		return 0, 0, &Error{Op: "read", Path: dir, Err: errors.New("not the directory of a cgroup")}
	}
	if cpu, err = t.cpuTime(dir); err != nil {
		return 0, 0, err
	}
	file, keys := t.path("memory", dir, "memory.stat"), []string{"inactive_anon", "active_anon", "unevictable"}
	if t.Version == V1 {
		keys = []string{"total_inactive_anon", "total_active_anon", "total_unevictable"}
	}
	stat, err := t.read(file)
	if err != nil {
		return 0, 0, err
	}
	if bytes, err = sum(stat, keys...); err != nil {
		return 0, 0, &Error{Op: "read", Path: file, Err: err}
	}
	return cpu, bytes, nil
}

// cpuTime reads the CPU time that a cgroup has used.
func (t *Tree) cpuTime(dir string) (time.Duration, error) {
	if t.Version == V2 {
		file := t.path("", dir, "cpu.stat")
		stat, err := t.read(file)
		if err != nil {
			return 0, err
		}
		us, err := sum(stat, "usage_usec")
		if err != nil {
			return 0, &Error{Op: "read", Path: file, Err: err}
		}
		return time.Duration(us) * time.Microsecond, nil
	}
	file := t.path("cpuacct", dir, "cpuacct.usage")
	text, err := t.read(file)
	if err != nil {
		return 0, err
	}
	ns, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, &Error{Op: "read", Path: file, Err: fmt.Errorf("%q is no number", shorten(text))}
	}
	return time.Duration(ns), nil
}

// sum adds the values of keys in a file of lines "key value". All of them must be there.
func sum(text string, keys ...string) (total int64, err error) {
	found := 0
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		for _, k := range keys {
			if key != k {
				continue
			}
			n, err := strconv.ParseInt(value, 10, 64)
			if err != nil {
				return 0, fmt.Errorf("%s: %q is no number", key, shorten(value))
			}
			found, total = found+1, total+n
		}
	}
	if found != len(keys) {
		return 0, fmt.Errorf("without %s", strings.Join(keys, ", "))
	}
	return total, nil
}
