package bypass

import (
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
)

// progress is how far the making of a container is.
type progress int

const (
	unclear progress = iota // no process of it can be seen
	making                  // the OCI runtime is at work on its cgroup
	ready                   // that is over; the workload waits, or runs
)

// progress tells whether the OCI runtime still works on a fresh cgroup. It must
// be left alone until then: runc reads back what it wrote and fails the
// container where somebody was faster (cpu.shares of version 1, opencontainers
// cgroups 0.1.0), and sets memory and swap in an order that depends on what it
// finds. The first process of a container is a child of the program that creates
// it, "runc:[2:INIT]" of "runc", until that program has ended.
func (f *fresh) progress() progress {
	s := f.s
	text, err := s.a.o.Tree.FS.ReadFile(path.Join(s.places.file(f.dir), "cgroup.procs"))
	if err != nil {
		return unclear
	}
	first, _, _ := strings.Cut(string(text), "\n")
	pid, err := strconv.Atoi(first)
	if err != nil || pid <= 0 { // 0: of a PID namespace that is not ours to see
		return unclear
	}
	stat := s.proc(pid, "stat")
	end := strings.LastIndexByte(stat, ')') // comm may hold anything
	begin := strings.IndexByte(stat, '(')
	fields := strings.Fields(stat[end+1:])
	if begin < 0 || end < begin || len(fields) < 2 {
		return unclear
	}
	parent, err := strconv.Atoi(fields[1])
	if err != nil {
		return unclear
	}
	above := strings.TrimSpace(s.proc(parent, "comm"))
	switch {
	case above == "":
		return unclear
	case strings.HasPrefix(stat[begin+1:end], above):
		return making
	}
	return ready
}

func (s *session) proc(pid int, file string) string {
	data, err := os.ReadFile(filepath.Join(s.a.o.Proc, strconv.Itoa(pid), file))
	if err != nil {
		return ""
	}
	return string(data)
}
