// Package effective reads the effective state of a container from its cgroup files and its OCI spec. The package parses
// the files with its own code, so that it does not have the same errors as the code under test.
package effective

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// Unlimited is the value of State.Quota and State.Memory if the cgroup has no limit.
const Unlimited = -1

// State is the effective state of a container, or of a pod's cgroup.
type State struct {
	CPUs string // the effective CPUs, as a kernel list
	Mems string // the effective memory nodes, as a kernel list
	// Shares are the CPU shares in cgroup version 1, and the weight in version 2.
	Shares  uint64
	V2      bool              // the state is from cgroup version 2
	Quota   int64             // µs per Period, or Unlimited
	Period  int64             // µs
	Memory  int64             // bytes, or Unlimited
	Env     map[string]string // values by the name of the environment variable
	Mounts  map[string]string // sources by destination
	Devices []string          // paths of device nodes
	CDI     []string          // names of the container's CDI devices; set by the caller
	BlockIO string            // block I/O class; set by the caller
	// RDTClass is the RDT class that the container got at its creation. RDTGroup is the resctrl group of the container's
	// threads. The caller sets both.
	RDTClass, RDTGroup string
	Cookie             uint64 // the core scheduling cookie; set by the caller
	OOM                int    // oom_score_adj
	// Process has the settings of the first process and of its namespaces, and the OCI hooks. A scenario expects them
	// by the same keys and texts, in the field process of a container.
	Process map[string]string
}

// Files reads files of a cgroup tree. Paths are relative to the directory in which the hierarchies are mounted.
type Files interface {
	ReadFile(path string) ([]byte, error)
}

// Weight converts CPU shares to a weight of cgroup version 2 by the linear formula of Kubernetes' KEP-2254: 2 shares
// are weight 1, 1024 shares are 39, 262144 shares are 10000. Newer versions of runc use another formula.
func Weight(shares uint64) uint64 {
	shares = min(max(shares, 2), 262144)
	return 1 + (shares-2)*9999/262142
}

// HasShares reports whether the state has the given CPU shares or, in version 2, the weight for these shares.
func (s State) HasShares(want uint64) bool {
	if s.V2 {
		return s.Shares == Weight(want)
	}
	return s.Shares == want
}

// ReadCgroup reads the state of a cgroup. The parameter dir is the cgroup's path below the hierarchy of each controller
// in version 1, and below the only hierarchy in version 2.
func ReadCgroup(files Files, v2 bool, dir string) (State, error) {
	r := reader{files: files, dir: dir, v2: v2}
	s := State{V2: v2}
	if v2 {
		s.CPUs = r.firstExisting("", "cpuset.cpus.effective", "cpuset.cpus")
		s.Mems = r.firstExisting("", "cpuset.mems.effective", "cpuset.mems")
		s.Shares = r.readNumber("", "cpu.weight")
		s.Memory = r.readLimit("", "memory.max")
		s.Quota, s.Period = r.readCPUMax()
		return s, r.err
	}
	s.CPUs = r.firstExisting("cpuset", "cpuset.effective_cpus", "cpuset.cpus")
	s.Mems = r.firstExisting("cpuset", "cpuset.effective_mems", "cpuset.mems")
	s.Shares = r.readNumber("cpu", "cpu.shares")
	s.Quota = r.readLimit("cpu", "cpu.cfs_quota_us")
	s.Period = r.readLimit("cpu", "cpu.cfs_period_us")
	s.Memory = r.readLimit("memory", "memory.limit_in_bytes")
	// Version 1 reports the largest multiple of the page size in an int64 if the memory is unlimited.
	if s.Memory >= 1<<62 {
		s.Memory = Unlimited
	}
	return s, r.err
}

// reader reads files of one cgroup and stores the first error.
type reader struct {
	files Files
	dir   string
	v2    bool
	err   error
}

// readText reads a file of the cgroup in the hierarchy of a controller. controller is "" in cgroup version 2.
func (r *reader) readText(controller, file string) (string, error) {
	path := r.dir + "/" + file
	if controller != "" {
		path = controller + "/" + path
	}
	b, err := r.files.ReadFile(path)
	return strings.TrimSpace(string(b)), err
}

// keepFirstError stores err, unless the reader has stored an error before.
func (r *reader) keepFirstError(err error) {
	if r.err == nil {
		r.err = err
	}
}

// firstExisting returns the text of the first file in the list that exists. Older kernels lack some of the files.
func (r *reader) firstExisting(controller string, names ...string) string {
	var errs []error
	for _, n := range names {
		text, err := r.readText(controller, n)
		if err == nil {
			return text
		}
		errs = append(errs, err)
		if !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	r.keepFirstError(errors.Join(errs...))
	return ""
}

// readNumber reads a whole number. After an error it returns 0.
func (r *reader) readNumber(controller, file string) uint64 {
	text, err := r.readText(controller, file)
	if err != nil {
		r.keepFirstError(err)
		return 0
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		r.keepFirstError(fmt.Errorf("%s/%s: %w", r.dir, file, err))
	}
	return n
}

// readLimit reads a limit. The texts max and -1 mean Unlimited.
func (r *reader) readLimit(controller, file string) int64 {
	text, err := r.readText(controller, file)
	if err != nil {
		r.keepFirstError(err)
		return 0
	}
	n, err := parseLimit(text)
	if err != nil {
		r.keepFirstError(fmt.Errorf("%s/%s: %w", r.dir, file, err))
	}
	return n
}

// readCPUMax reads the file cpu.max of cgroup version 2. The result quota is Unlimited if there is no limit.
func (r *reader) readCPUMax() (quota, period int64) {
	text, err := r.readText("", "cpu.max")
	if err != nil {
		r.keepFirstError(err)
		return 0, 0
	}
	f := strings.Fields(text)
	if len(f) != 2 {
		r.keepFirstError(fmt.Errorf("%s/cpu.max: %q does not have the two fields quota and period", r.dir, text))
		return 0, 0
	}
	quota, qerr := parseLimit(f[0])
	period, perr := parseLimit(f[1])
	r.keepFirstError(errors.Join(qerr, perr))
	return quota, period
}

// parseLimit parses a number. The text max means Unlimited.
func parseLimit(text string) (int64, error) {
	if text == "max" {
		return Unlimited, nil
	}
	return strconv.ParseInt(text, 10, 64)
}

// WithSpec returns the state with the fields of an OCI spec that are not in cgroup files, such as environment, mounts
// and devices.
func (s State) WithSpec(spec *specs.Spec) State {
	s.Env, s.Mounts = map[string]string{}, map[string]string{}
	if spec.Process != nil {
		for _, e := range spec.Process.Env {
			name, value, _ := strings.Cut(e, "=")
			s.Env[name] = value
		}
		if spec.Process.OOMScoreAdj != nil {
			s.OOM = *spec.Process.OOMScoreAdj
		}
	}
	s.Process = processSettings(spec)
	for _, m := range spec.Mounts {
		s.Mounts[m.Destination] = m.Source
	}
	s.Devices = nil
	if spec.Linux != nil {
		for _, d := range spec.Linux.Devices {
			s.Devices = append(s.Devices, d.Path)
		}
	}
	return s
}

// PlannedState returns the state that a container with the given OCI spec has after its start. CPUs, Mems, Shares and
// Period are empty if the spec does not set them.
func PlannedState(spec *specs.Spec, v2 bool) State {
	s := State{V2: v2, Quota: Unlimited, Memory: Unlimited}
	if spec.Linux == nil || spec.Linux.Resources == nil {
		return s.WithSpec(spec)
	}
	if c := spec.Linux.Resources.CPU; c != nil {
		s.CPUs, s.Mems = c.Cpus, c.Mems
		if c.Shares != nil {
			s.Shares = *c.Shares
			if v2 {
				s.Shares = Weight(*c.Shares)
			}
		}
		if c.Quota != nil && *c.Quota > 0 {
			s.Quota = *c.Quota
		}
		if c.Period != nil {
			s.Period = int64(*c.Period)
		}
	}
	if m := spec.Linux.Resources.Memory; m != nil && m.Limit != nil && *m.Limit > 0 {
		s.Memory = *m.Limit
	}
	return s.WithSpec(spec)
}

// AddedEnv returns the environment variables of s, as NAME=value, that the map before lacks or has with another value.
func (s State) AddedEnv(before map[string]string) []string {
	var added []string
	for _, name := range slices.Sorted(maps.Keys(s.Env)) {
		if v, had := before[name]; !had || v != s.Env[name] {
			added = append(added, name+"="+s.Env[name])
		}
	}
	return added
}
