package cgroup

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Usage reads the CPU time that a cgroup has used, and how many bytes of its memory are not page cache. The kernel can
// free these bytes only if it swaps them or kills processes.
func (t *Tree) Usage(dir string) (cpu time.Duration, bytes int64, err error) {
	if cpu, err = t.cpuTime(dir); err != nil {
		return 0, 0, err
	}
	keys := []string{"inactive_anon", "active_anon", "unevictable"}
	if t.Version == V1 {
		keys = []string{"total_inactive_anon", "total_active_anon", "total_unevictable"}
	}
	if bytes, err = t.sumFileValues(t.path("memory", dir, "memory.stat"), keys...); err != nil {
		return 0, 0, err
	}
	return cpu, bytes, nil
}

// cpuTime reads the CPU time that a cgroup has used.
func (t *Tree) cpuTime(dir string) (time.Duration, error) {
	if !IsDir(dir) {
		return 0, &Error{Op: "read", Path: dir, Err: errors.New("not the directory of a cgroup")}
	}
	if t.Version == V2 {
		us, err := t.sumFileValues(t.path("", dir, "cpu.stat"), "usage_usec")
		return time.Duration(us) * time.Microsecond, err
	}
	file := t.path("cpuacct", dir, "cpuacct.usage")
	text, err := t.read(file)
	if err != nil {
		return 0, err
	}
	ns, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, &Error{Op: "read", Path: file, Err: fmt.Errorf("%q is not a number", shorten(text))}
	}
	return time.Duration(ns), nil
}

// sumFileValues reads a file with lines "key value", and returns the sum of the values of the given keys.
func (t *Tree) sumFileValues(file string, keys ...string) (int64, error) {
	text, err := t.read(file)
	if err != nil {
		return 0, err
	}
	total, err := sumValues(text, keys...)
	if err != nil {
		return 0, &Error{Op: "read", Path: file, Err: err}
	}
	return total, nil
}

// sumValues returns the sum of the values of the given keys in a text with lines "key value". The text must have all
// these keys.
func sumValues(text string, keys ...string) (total int64, err error) {
	found := 0
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		for _, k := range keys {
			if key != k {
				continue
			}
			n, err := strconv.ParseInt(value, 10, 64)
			if err != nil {
				return 0, fmt.Errorf("%s: %q is not a number", key, shorten(value))
			}
			found, total = found+1, total+n
		}
	}
	if found != len(keys) {
		return 0, fmt.Errorf("the file lacks one of the keys %s", strings.Join(keys, ", "))
	}
	return total, nil
}
