package scenario

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/trimtab/trimtab/internal/jsonwords"
	"github.com/trimtab/trimtab/internal/topology"
	"github.com/trimtab/trimtab/internal/topology/describe"
)

// Load reads and checks the scenario in a file.
func Load(file string) (*Scenario, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("scenario: %w", err)
	}
	s, err := Parse(b)
	if err != nil {
		return nil, fmt.Errorf("scenario %s: %w", file, err)
	}
	if c := s.Node.Captured; c != "" && !filepath.IsAbs(c) {
		s.Node.Captured = filepath.Join(filepath.Dir(file), c)
	}
	return s, nil
}

// Parse parses and checks a scenario. Unknown keys, repeated keys and keys in wrong case are errors. If several values
// are wrong, the error lists all of them.
func Parse(text []byte) (*Scenario, error) {
	asJSON, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return nil, jsonwords.Error(err)
	}
	s := &Scenario{}
	if err := decodeStrict(asJSON, s); err != nil {
		return nil, err
	}
	if err := s.expandManifests(); err != nil {
		return nil, err
	}
	if err := s.check(); err != nil {
		return nil, err
	}
	return s, nil
}

// decodeStrict decodes JSON. Unlike encoding/json, decodeStrict is case-sensitive. Its error names each unknown key by
// its path, and the most similar valid key.
func decodeStrict(text []byte, into any) error {
	strict, err := kjson.UnmarshalStrict(text, into)
	for i := range strict {
		strict[i] = addNearestKey(strict[i], into)
	}
	return jsonwords.Error(errors.Join(append([]error{err}, strict...)...))
}

// check returns an error that lists all wrong values of the scenario.
func (s *Scenario) check() error {
	var errs []error
	fail := func(where string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", where, err))
		}
	}
	if s.Name == "" {
		fail("name", errors.New("the key is missing: set it to the name of the scenario"))
	}
	fail("node", s.Node.check())
	if len(s.Steps) == 0 {
		fail("steps", errors.New("the scenario has no steps: write at least one"))
	}
	for i := range s.Steps {
		where := fmt.Sprintf("steps[%d]", i)
		if s.Steps[i].Name != "" {
			where += " (" + s.Steps[i].Name + ")"
		}
		fail(where, s.Steps[i].check())
	}
	return errors.Join(errs...)
}

// check sets the defaults of the keys cgroup and driver, and returns an error that lists the wrong values of the node.
func (n *Node) check() error {
	var machine error
	switch described := n.CPUs != "" || n.Present != "" || n.WithoutNUMA || n.Isolated != "" || n.Efficient != "" || len(n.FarMemory) > 0 || len(n.Distances) > 0; {
	case n.Captured != "" && described:
		machine = errors.New("captured: the file describes the whole machine: leave out cpus, present, withoutNUMA, isolated, efficient, farMemory and distances")
	case n.Captured != "":
	case n.WithoutNUMA && (len(n.FarMemory) > 0 || len(n.Distances) > 0):
		machine = errors.New("withoutNUMA: a kernel without NUMA has no nodes: leave out farMemory and distances")
	case n.CPUs == "":
		machine = errors.New(`cpus is missing: write for example "2s x 2n x 4c x 2t", or set captured to a file of 'trimtab capture'`)
	default:
		if _, err := describe.ParsePresent(n.CPUs, n.Present); err != nil {
			machine = fmt.Errorf("cpus: %w", err)
		}
	}
	if n.Cgroup == "" {
		n.Cgroup = "v2"
	}
	if n.Driver == "" {
		n.Driver = "cgroupfs"
	}
	return errors.Join(machine,
		oneOf("cgroup", n.Cgroup, "v1", "v2"),
		oneOf("driver", n.Driver, "cgroupfs", "systemd"))
}

// check returns an error that lists the wrong values of the step.
func (s *Step) check() error {
	errs := []error{s.checkAction()}
	for i := range s.Run {
		if err := s.Run[i].check(); err != nil {
			errs = append(errs, fmt.Errorf("run[%d]: %w", i, err))
		}
	}
	for _, r := range append(append([]Ref{}, s.Stop...), s.Remove...) {
		errs = append(errs, r.check(0))
	}
	for r, w := range s.Want {
		errs = append(errs, r.check(0))
		if w.State != "" {
			errs = append(errs, oneOf("state of "+string(r), w.State, "created", "running", "stopped"))
		}
		if r.Container() == "" && (w.Env != nil || w.Absent != nil || w.Mounts != nil || w.Exclusive || w.State != "" || w.Class != "" || w.Problems != nil) {
			errs = append(errs, fmt.Errorf("want %s: for a pod only cpus, mems, shares, quota and memory can be wanted; write namespace/pod/container for other keys", r))
		}
	}
	return errors.Join(errs...)
}

// checkAction checks that a step has at most one action, and that the values of the action are valid.
func (s *Step) checkAction() error {
	var errs []error
	n := 0
	count := func(set bool) {
		if set {
			n++
		}
	}
	count(len(s.Run) > 0)
	count(s.Create != nil)
	count(s.Start != "")
	count(s.Update != nil)
	count(len(s.Stop) > 0)
	count(len(s.Remove) > 0)
	count(s.Restart != "")
	count(s.Kubelet != "")
	count(s.Annotate != nil)
	count(len(s.Reconfigure) > 0)
	if n > 1 {
		errs = append(errs, errors.New("the step has more than one action: write several steps"))
	}
	if s.Rejected != "" && n == 0 {
		errs = append(errs, errors.New("the step has wantRejected, but no action that could be rejected: add an action or remove wantRejected"))
	}
	if s.Create != nil {
		errs = append(errs, s.Create.Pod.check(-1), s.Create.Container.check())
	}
	if s.Start != "" {
		errs = append(errs, s.Start.check(1))
	}
	if s.Update != nil {
		errs = append(errs, s.Update.Container.check(1))
		if s.Update.PodResources != nil {
			errs = append(errs, s.Update.PodResources.check())
		}
	}
	if s.Kubelet != "" {
		errs = append(errs, oneOf("kubelet", s.Kubelet, "away", "back"))
	}
	if s.Annotate != nil {
		errs = append(errs, s.Annotate.Pod.check(-1))
	}
	if s.Restart != "" {
		errs = append(errs, oneOf("restart", s.Restart, "agent", "runtime"))
	}
	return errors.Join(errs...)
}

// check returns an error that lists the wrong values of the pod and its containers.
func (r *Run) check() error {
	errs := []error{oneOf("pod: qos", r.Pod.QoS, "Guaranteed", "Burstable", "BestEffort")}
	errs = append(errs, PodRef(r.Pod.Namespace, r.Pod.Name).check(-1))
	for _, name := range slices.Sorted(maps.Keys(r.Pod.PodResources)) {
		s := r.Pod.PodResources[name]
		errs = append(errs, s.check())
	}
	seen := map[string]bool{}
	for _, c := range r.Containers {
		errs = append(errs, c.check())
		if seen[c.Name] {
			errs = append(errs, fmt.Errorf("two containers have the name %q: give each its own name", c.Name))
		}
		seen[c.Name] = true
	}
	return errors.Join(errs...)
}

// IDs returns the ids of the CPUs and memory nodes in s.
func (s *Static) IDs() (cpus, mems []int, err error) {
	cpus, err = topology.ParseList(s.CPUs)
	if err == nil {
		mems, err = topology.ParseList(s.Mems)
	}
	return cpus, mems, err
}

// check returns an error for lists that are malformed.
func (s *Static) check() error {
	if _, _, err := s.IDs(); err != nil {
		return fmt.Errorf("podResources: %w", err)
	}
	for resource, nodes := range s.Devices {
		if _, err := topology.ParseList(nodes); err != nil {
			return fmt.Errorf("podResources: devices: %s: %w", resource, err)
		}
	}
	return nil
}

// check returns an error that lists the wrong values of the container.
func (c *Container) check() error {
	if c.Name == "" {
		return errors.New("a container has no name: set its key name")
	}
	return nil
}

// oneOf returns an error if value is not one of choices. key is the name of the value's key in the error.
func oneOf(key, value string, choices ...string) error {
	for _, c := range choices {
		if value == c {
			return nil
		}
	}
	return fmt.Errorf("%s: is %q, want one of %v", key, value, choices)
}
