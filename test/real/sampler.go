package real

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/trimtab/trimtab/test/real/internal/host"
)

// Snapshot is what every watched container may run on at one moment: effective CPU list by container folder, which
// is relative to the sampler's root. A list is empty until the container's first instruction: before, the folder holds
// nothing, or the runtime's own process that makes the container.
type Snapshot map[string]string

// Findings is what a sampler saw. A test should print it: zero violations in few samples say little.
type Findings struct {
	Samples    int // consistent snapshots, each judged
	Torn       int // passes thrown away because something changed between two looks
	Reads      int // files read
	Containers int // most containers in one snapshot
	States     int // samples that differed from the one before
	Violations int
	First      []string // the first few violations in words
}

func (f Findings) String() string {
	return fmt.Sprintf("%d samples of up to %d containers (%d states, %d torn passes, %d cgroup reads), %d violations",
		f.Samples, f.Containers, f.States, f.Torn, f.Reads, f.Violations)
}

const wordsKept = 10

// Sampler looks at the effective cpusets below a cgroup again and again, without a pause. Files are read one after
// another, so one pass may show CPUs in two places while they move from one container to another. A snapshot
// therefore counts only if two passes in a row read the same: then all of it held at the moment between them. What
// lasts for less than two passes can be missed.
type Sampler struct {
	root, file string
	keep       func(dir string) bool
	judge      func(Snapshot) error
	open       map[string]*os.File
	begun      map[string]bool // by folder: the container's own process was seen
	stop       chan struct{}
	stopped    chan struct{}
	once       sync.Once
	found      Findings
}

// Sample watches this runtime's containers, without sandboxes, and judges each snapshot. It stops with the test.
func (c *Containerd) Sample(judge func(Snapshot) error) *Sampler {
	c.t.Helper()
	return NewSampler(c.t, c.parent, c.isContainer, judge)
}

// isContainer knows a container before its cgroup exists: the id is given at create, the cgroup made at start.
func (c *Containerd) isContainer(dir string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.containers[ContainerID(filepath.Base(dir))]
	return ok
}

// NewSampler watches the folders below root, a path from the root of the cpuset hierarchy, for which keep is true.
func NewSampler(t testing.TB, root string, keep func(dir string) bool, judge func(Snapshot) error) *Sampler {
	t.Helper()
	all, err := host.Hierarchies()
	if err != nil {
		t.Fatal(err)
	}
	h, err := host.For(all, "cpuset")
	if err != nil {
		t.Fatal(err)
	}
	s := &Sampler{
		root: filepath.Join(h.Mount, root), file: "cpuset.effective_cpus", keep: keep, judge: judge,
		open: map[string]*os.File{}, begun: map[string]bool{}, stop: make(chan struct{}), stopped: make(chan struct{}),
	}
	if h.Unified {
		s.file = "cpuset.cpus.effective"
	}
	go s.run()
	t.Cleanup(func() { s.Stop() })
	return s
}

// Stop ends the sampling and returns what was found. It may be called again.
func (s *Sampler) Stop() Findings {
	s.once.Do(func() { close(s.stop) })
	<-s.stopped
	return s.found
}

func (s *Sampler) run() {
	defer close(s.stopped)
	defer func() {
		for _, f := range s.open {
			f.Close()
		}
	}()
	var judged Snapshot
	for before := s.pass(); ; {
		select {
		case <-s.stop:
			return
		default:
		}
		now := s.pass()
		if !maps.Equal(before, now) {
			s.found.Torn++
			before = now
			continue
		}
		s.found.Samples++
		s.found.Containers = max(s.found.Containers, len(now))
		if judged == nil || !maps.Equal(judged, now) {
			s.found.States++
			judged = now
		}
		if err := s.judge(now); err != nil {
			s.found.Violations++
			if len(s.found.First) < wordsKept {
				s.found.First = append(s.found.First, err.Error())
			}
		}
	}
}

// pass reads every kept folder once. A cgroup that is gone by the time it is read is not part of the answer.
func (s *Sampler) pass() Snapshot {
	seen := Snapshot{}
	s.walk(s.root, "", seen)
	for dir, f := range s.open {
		if _, ok := seen[dir]; !ok {
			f.Close()
			delete(s.open, dir)
			delete(s.begun, dir)
		}
	}
	return seen
}

func (s *Sampler) walk(path, rel string, seen Snapshot) {
	if rel != "" && s.keep(rel) {
		if list, err := s.read(path, rel); err == nil {
			seen[rel] = list
		}
		return // what a container has below itself is its own business
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return
	}
	for _, e := range entries {
		if e.IsDir() {
			s.walk(filepath.Join(path, e.Name()), filepath.Join(rel, e.Name()), seen)
		}
	}
}

func (s *Sampler) read(path, rel string) (string, error) {
	f := s.open[rel]
	if f == nil {
		opened, err := os.Open(filepath.Join(path, s.file))
		if err != nil {
			return "", err
		}
		f, s.open[rel] = opened, opened
	}
	s.found.Reads++
	buffer := make([]byte, 4096) // the kernel hands out at most a page here
	n, err := f.ReadAt(buffer, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	if !s.hasBegun(path, rel) {
		return "", nil
	}
	return strings.TrimSpace(string(buffer[:n])), nil
}

// hasBegun reports whether a container's first instruction has run. It is asked after the list was read: what has not
// begun now had not begun then.
func (s *Sampler) hasBegun(path, rel string) bool {
	if s.begun[rel] {
		return true
	}
	s.found.Reads++
	procs, err := os.ReadFile(filepath.Join(path, "cgroup.procs"))
	if err != nil {
		return false
	}
	for pid := range strings.FieldsSeq(string(procs)) {
		// Until it executes the container's program the process is runc: its file, or a sealed copy called after it. Its
		// name does not show, since it starts as "exe".
		exe, err := os.Readlink(filepath.Join("/proc", pid, "exe"))
		if err == nil && !strings.Contains(exe, "runc") {
			s.begun[rel] = true
		}
	}
	return s.begun[rel]
}

// NoSharing makes a judge: a container for which exclusive says true shares none of its CPUs with any other one.
// exclusive is asked at every sample, so it may change its mind as containers come and go.
func NoSharing(exclusive func(dir string) bool) func(Snapshot) error {
	return func(s Snapshot) error {
		sets := make(map[string]map[int]bool, len(s))
		for dir, list := range s {
			cpus, err := parseCPUs(list)
			if err != nil {
				return fmt.Errorf("%s: %w", dir, err)
			}
			sets[dir] = cpus
		}
		for dir := range s {
			if !exclusive(dir) {
				continue
			}
			if cpu, other, shared := sharing(dir, sets); shared {
				return fmt.Errorf("CPU %d of %s (%s) is also in %s (%s)", cpu, dir, s[dir], other, s[other])
			}
		}
		return nil
	}
}

func sharing(dir string, sets map[string]map[int]bool) (cpu int, other string, shared bool) {
	for other, cpus := range sets {
		if other == dir {
			continue
		}
		for cpu := range sets[dir] {
			if cpus[cpu] {
				return cpu, other, true
			}
		}
	}
	return 0, "", false
}
