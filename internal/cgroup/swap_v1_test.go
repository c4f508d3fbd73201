package cgroup_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/sim/kernel"
)

// The limit of memory and swap that runtimes set never prevents a memory limit, and changes with it in both
// directions.
func TestMemoryLimitWithSwapV1(t *testing.T) {
	const (
		none      = "9223372036854771712"
		limitFile = "memory/p/memory.limit_in_bytes"
		swapFile  = "memory/p/memory.memsw.limit_in_bytes"
	)
	for name, c := range map[string]struct {
		limit, swap string // at the start
		write       []string
		want        [][2]string // limit and swap after each write
	}{
		"follows up and down": {"1048576", "1048576", []string{"2097152", "524288", "1048576"},
			[][2]string{{"2097152", "2097152"}, {"524288", "524288"}, {"1048576", "1048576"}}},
		"to none and back": {"1048576", "1048576", []string{none, "1048576", "-1"},
			[][2]string{{none, none}, {"1048576", none}, {none, none}}},
		"none stays none":        {"", "", []string{"1048576", "-1"}, [][2]string{{"1048576", none}, {none, none}}},
		"room for swap is kept":  {"1048576", "4194304", []string{"2097152", "524288"}, [][2]string{{"2097152", "4194304"}, {"524288", "4194304"}}},
		"raised where too small": {"1048576", "2097152", []string{"4194304"}, [][2]string{{"4194304", "4194304"}}},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := kernel.NewCgroups(cgroup.V1, "0-3", "0-1")
			if err == nil {
				err = f.Mkdir("p")
			}
			if err == nil && c.limit != "" {
				err = errors.Join(f.WriteFile(limitFile, []byte(c.limit)), f.WriteFile(swapFile, []byte(c.swap)))
			}
			if err != nil {
				t.Fatal(err)
			}
			tree := &cgroup.Tree{FS: f, Version: cgroup.V1}
			for i, text := range c.write {
				if err := tree.WriteText("p", lifecycle.MemoryLimit, "", text); err != nil {
					t.Fatalf("write %s: %v", text, err)
				}
				limit, errLimit := f.ReadFile(limitFile)
				swap, errSwap := f.ReadFile(swapFile)
				if err := errors.Join(errLimit, errSwap); err != nil {
					t.Fatal(err)
				}
				if got := [2]string{strings.TrimSpace(string(limit)), strings.TrimSpace(string(swap))}; got != c.want[i] {
					t.Errorf("after %s: limit and swap are %v, want %v", text, got, c.want[i])
				}
			}
		})
	}
}
