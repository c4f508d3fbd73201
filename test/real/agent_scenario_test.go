package real_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/trimtab/trimtab/internal/parity"
	"github.com/trimtab/trimtab/internal/sim/effective"
	"github.com/trimtab/trimtab/internal/sim/scenario"
	"github.com/trimtab/trimtab/test/real"
)

// TestScenarios plays the files of testdata, which are made for a node of two CPUs, on the real runtime. They have the
// format of test/scenarios. Code that is independent of engine and attachments compares the wants with the kernel's
// files and with the probe's report of the first instruction.
func TestScenarios(t *testing.T) {
	t.Parallel()
	needTwoCPUs(t)
	playScenarios(t, "nri")
}

// TestProxyScenarios plays the same files through the CRI proxy, in front of a runtime without NRI.
func TestProxyScenarios(t *testing.T) {
	t.Parallel()
	needTwoCPUs(t)
	playScenarios(t, "cri", real.WithoutNRI())
}

// TestBypassScenarios plays them with bypass and a runtime without NRI.
func TestBypassScenarios(t *testing.T) {
	t.Parallel()
	needTwoCPUs(t)
	playScenarios(t, "bypass", real.WithoutNRI())
}

// TestBypassScenarios16 does the same with Debian's containerd 1.6.
func TestBypassScenarios16(t *testing.T) {
	t.Parallel()
	needTwoCPUs(t)
	program, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	if !real.Privately(t, builtBinary+"="+program) {
		return
	}
	playScenarios(t, "bypass", real.WithRelease(real.V16), real.WithoutNRI())
}

// TestProxyScenarios16 does the same with Debian's containerd 1.6.
func TestProxyScenarios16(t *testing.T) {
	t.Parallel()
	needTwoCPUs(t)
	program, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	if !real.Privately(t, builtBinary+"="+program) {
		return
	}
	playScenarios(t, "cri", real.WithRelease(real.V16), real.WithoutNRI())
}

func playScenarios(t *testing.T, attach string, o ...real.Option) {
	t.Helper()
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			t.Parallel()
			s, err := scenario.Load(file)
			if err != nil {
				t.Fatal(err)
			}
			c := real.Start(t, o...)
			needV1(t, c)
			p := &player{
				t: t, c: c, a: newTrimtab(t), pods: map[scenario.Ref]real.PodID{}, ctrs: map[scenario.Ref]real.ContainerID{},
				at: parity.ByName(attach),
			}
			switch attach {
			case "cri":
				p.attach = p.a.between(c)
			case "bypass":
				p.attach = bypassConfig(c, "")
			}
			p.a.configure(c, p.attach+document(t, s.Config))
			p.a.run()
			p.back()
			for i := range s.Steps {
				p.at.RemoveUnsupported(&s.Steps[i])
				p.step(&s.Steps[i])
			}
			t.Logf("%d steps, %d wants", len(s.Steps), p.wants)
		})
	}
}

// player plays one scenario.
type player struct {
	t     *testing.T
	c     *real.Containerd
	a     *trimtab
	pods  map[scenario.Ref]real.PodID
	ctrs  map[scenario.Ref]real.ContainerID
	fresh []scenario.Ref // started by this step
	wants int
	at    parity.Attachment
	// attach is the configuration of the attachment; empty for NRI.
	attach string
}

// back waits until the agent is attached and the runtime answers the kubelet.
func (p *player) back() {
	p.t.Helper()
	p.a.attached()
	if p.at.Name != "cri" {
		return
	}
	p.c.Through(p.a.proxy())
	answers(p.t, p.c)
}

// document writes the keys of a configuration as lines of YAML, with JSON values.
func document(t *testing.T, config json.RawMessage) string {
	t.Helper()
	if len(config) == 0 {
		return ""
	}
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(config, &keys); err != nil {
		t.Fatal(err)
	}
	var lines strings.Builder
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		fmt.Fprintf(&lines, "%s: %s\n", key, keys[key])
	}
	return lines.String()
}

func (p *player) step(s *scenario.Step) {
	p.t.Helper()
	p.fresh = nil
	err := p.act(s)
	switch {
	case s.Rejected == "" && err != nil:
		p.t.Fatalf("step %s: %v", s.Name, err)
	case s.Rejected != "" && (err == nil || !strings.Contains(err.Error(), s.Rejected)):
		p.t.Errorf("step %s: was rejected with %v, want %q", s.Name, err, s.Rejected)
	}
	for _, ref := range slices.Sorted(maps.Keys(s.Want)) {
		p.wants++
		want := s.Want[ref]
		if err := p.await(func() error { return p.check(ref, want) }); err != nil {
			p.t.Errorf("step %s: %s: %v [%s]", s.Name, ref, err, want.From)
		}
		if slices.Contains(p.fresh, ref) {
			if err := p.checkFirst(ref, p.at.WantAtStart(want)); err != nil {
				p.t.Errorf("step %s: %s at its first instruction: %v [%s]", s.Name, ref, err, want.From)
			}
		}
	}
}

// await waits until check returns no error, and returns its last error.
func (p *player) await(check func() error) error {
	var last error
	real.Eventually(quiet{p.t}, patiently, func() error { last = check(); return last })
	return last
}

// quiet lets a wait time out without failing the test.
type quiet struct{ testing.TB }

func (quiet) Fatalf(string, ...any) {}
func (quiet) Helper()               {}

func (p *player) act(s *scenario.Step) error {
	for i := range s.Run {
		if err := p.run(&s.Run[i]); err != nil {
			return err
		}
	}
	switch {
	case s.Create != nil:
		return p.create(s.Create.Pod, s.Create.Container)
	case s.Start != "":
		p.fresh = append(p.fresh, s.Start)
		return p.c.TryStartContainer(p.ctrs[s.Start])
	case s.Update != nil:
		return p.c.TryUpdateResources(p.ctrs[s.Update.Container], resources(s.Update.Resources))
	case s.Restart == "agent":
		p.a.kill()
		p.a.run()
		p.back()
	case s.Restart == "runtime":
		p.c.Restart()
		p.back()
	case len(s.Reconfigure) > 0:
		n, err := p.a.status()
		if err != nil {
			return err
		}
		p.a.configure(p.c, p.attach+document(p.t, s.Reconfigure))
		p.a.generation(n.ConfigGen + 1)
	}
	return p.end(s)
}

func (p *player) end(s *scenario.Step) error {
	for _, ref := range s.Stop {
		if ref.Container() == "" {
			p.c.StopPod(p.pods[ref])
		} else if err := p.c.TryStopContainer(p.ctrs[ref]); err != nil {
			return err
		}
	}
	for _, ref := range s.Remove {
		if ref.Container() == "" {
			if err := p.c.TryRemovePod(p.pods[ref]); err != nil {
				return err
			}
		} else if err := p.c.TryRemoveContainer(p.ctrs[ref]); err != nil {
			return err
		}
	}
	return nil
}

func (p *player) run(r *scenario.Run) error {
	spec := real.PodSpec{
		Namespace: r.Pod.Namespace, Name: r.Pod.Name, UID: r.Pod.UID, QoS: real.QoS(strings.ToLower(r.Pod.QoS)),
		Labels: r.Pod.Labels, Annotations: r.Pod.Annotations, Resources: &cri.LinuxContainerResources{},
	}
	if r.Pod.Resources != nil {
		spec.Resources = resources(*r.Pod.Resources)
	} else if len(r.Containers) == 1 && r.Pod.QoS != "BestEffort" {
		spec.Resources = resources(r.Containers[0].Resources) // the sums over one container
		spec.Resources.CpusetCpus = ""
	}
	pod, err := p.c.TryRunPod(spec)
	if err != nil {
		return err
	}
	ref := scenario.PodRef(r.Pod.Namespace, r.Pod.Name)
	p.pods[ref] = pod
	for _, ctr := range r.Containers {
		if err := p.create(ref, ctr); err != nil {
			return err
		}
		if err := p.c.TryStartContainer(p.ctrs[ref.In(ctr.Name)]); err != nil {
			return err
		}
		p.fresh = append(p.fresh, ref.In(ctr.Name))
	}
	return nil
}

func (p *player) create(pod scenario.Ref, ctr scenario.Container) error {
	id, err := p.c.TryCreateContainer(p.pods[pod], real.ContainerSpec{
		Name: ctr.Name, Args: ctr.Args, Env: ctr.Env, Labels: ctr.Labels, Annotations: ctr.Annotations, Resources: resources(ctr.Resources),
	})
	p.ctrs[pod.In(ctr.Name)] = id
	return err
}

func resources(r scenario.Resources) *cri.LinuxContainerResources {
	out := &cri.LinuxContainerResources{CpusetCpus: r.CPUs, CpusetMems: r.Mems}
	if r.Shares != nil {
		out.CpuShares = int64(*r.Shares)
	}
	if r.Quota != nil {
		out.CpuQuota, out.CpuPeriod = *r.Quota, 100_000
	}
	if r.Period != nil {
		out.CpuPeriod = int64(*r.Period)
	}
	if r.Memory != nil {
		out.MemoryLimitInBytes = *r.Memory
	}
	return out
}

// check compares one want with the kernel, the runtime and the agent's status.
func (p *player) check(ref scenario.Ref, want scenario.Want) error {
	if ref.Container() == "" {
		got, err := effective.ReadCgroup(hostFiles{}, false, p.c.PodCgroup(p.pods[ref]))
		if err != nil {
			return err
		}
		return compare(want, got)
	}
	if err := p.checkAgent(ref, want); err != nil {
		return err
	}
	id := p.ctrs[ref]
	state := map[cri.ContainerState]string{
		cri.ContainerState_CONTAINER_CREATED: "created", cri.ContainerState_CONTAINER_RUNNING: "running", cri.ContainerState_CONTAINER_EXITED: "stopped",
	}[p.c.Status(id).State]
	if want.State != "" && state != want.State {
		return fmt.Errorf("is %s, want %s", state, want.State)
	}
	if state != "running" {
		return nil
	}
	got, err := p.effective(id)
	if err != nil {
		return err
	}
	if err := errors.Join(compare(want, got), p.checkFiles(id, want)); err != nil || !want.Exclusive {
		return err
	}
	for other, oid := range p.ctrs {
		if other.Pod() == ref.Pod() || oid == "" || p.c.ContainerPID(oid) == 0 {
			continue
		}
		theirs, err := p.effective(oid)
		if err != nil {
			return err
		}
		if overlap(got.CPUs, theirs.CPUs) {
			return fmt.Errorf("its CPUs %s are not its own: %s has %s", got.CPUs, other, theirs.CPUs)
		}
	}
	return nil
}

// checkFiles compares the wanted mounts and device nodes with what the container's process sees.
func (p *player) checkFiles(id real.ContainerID, want scenario.Want) error {
	root := fmt.Sprintf("/proc/%d/root", p.c.ContainerPID(id))
	for at, source := range want.Mounts {
		inside, err := os.Stat(root + at)
		if source == "" {
			if err == nil {
				return fmt.Errorf("%s exists, want none", at)
			}
			continue
		}
		outside, errHost := os.Stat(source)
		if err := errors.Join(err, errHost); err != nil {
			return err
		}
		if !os.SameFile(inside, outside) {
			return fmt.Errorf("%s is not the host's %s", at, source)
		}
	}
	for _, at := range want.Devices {
		if info, err := os.Lstat(root + at); err != nil || info.Mode()&os.ModeCharDevice == 0 {
			return fmt.Errorf("%s is no device node: %w", at, err)
		}
	}
	return nil
}

func (p *player) effective(id real.ContainerID) (effective.State, error) {
	got, err := effective.ReadCgroup(hostFiles{}, false, strings.TrimPrefix(p.c.CgroupDirs(id)["cpuset"], "/sys/fs/cgroup/cpuset/"))
	got.Env = p.c.FirstView(id).Env
	return got, err
}

func (p *player) checkAgent(ref scenario.Ref, want scenario.Want) error {
	if want.Class == "" && want.Problems == nil {
		return nil
	}
	namespace, pod, name := ref.Names()
	found, err := p.a.explained(namespace, pod, name)
	if err != nil {
		return err
	}
	if len(found) != 1 {
		return fmt.Errorf("the agent reports %d such containers", len(found))
	}
	if want.Class != "" && found[0].Class != want.Class {
		return fmt.Errorf("class is %s, want %s", found[0].Class, want.Class)
	}
	if want.Problems == nil {
		return nil
	}
	said := fmt.Sprint(found[0].Problems)
	for _, text := range *want.Problems {
		if !strings.Contains(said, text) {
			return fmt.Errorf("problems are %s, want one with %q", said, text)
		}
	}
	if len(*want.Problems) == 0 && len(found[0].Problems) > 0 {
		return fmt.Errorf("problems are %s, want none", said)
	}
	return nil
}

// checkFirst compares a want with the probe's report of the first instruction.
func (p *player) checkFirst(ref scenario.Ref, want scenario.Want) error {
	seen := p.c.FirstView(p.ctrs[ref])
	got, err := effective.ReadCgroup(seenFiles(seen.Cgroup), false, "own")
	if err != nil {
		return err
	}
	got.Env = seen.Env
	if err := compare(want, got); err != nil {
		return err
	}
	if want.CPUs != nil && !sameCPUs(seen.Affinity, *want.CPUs) {
		return fmt.Errorf("affinity is %s, want %s", seen.Affinity, *want.CPUs)
	}
	return nil
}

func compare(want scenario.Want, got effective.State) error {
	switch {
	case want.CPUs != nil && !sameCPUs(got.CPUs, *want.CPUs):
		return fmt.Errorf("cpus are %s, want %s", got.CPUs, *want.CPUs)
	case want.Shares != nil && !got.HasShares(*want.Shares):
		return fmt.Errorf("shares are %d, want %d", got.Shares, *want.Shares)
	case want.Quota != nil && got.Quota != *want.Quota:
		return fmt.Errorf("quota is %d, want %d", got.Quota, *want.Quota)
	case want.Memory != nil && got.Memory != *want.Memory:
		return fmt.Errorf("memory limit is %d, want %d", got.Memory, *want.Memory)
	}
	for name, value := range want.Env {
		if got.Env[name] != value {
			return fmt.Errorf("env %s is %q, want %q", name, got.Env[name], value)
		}
	}
	for _, name := range want.Absent {
		if value, has := got.Env[name]; has {
			return fmt.Errorf("env %s is %q, want none", name, value)
		}
	}
	return nil
}

// hostFiles are the host's cgroup files.
type hostFiles struct{}

func (hostFiles) ReadFile(path string) ([]byte, error) {
	return os.ReadFile(filepath.Join("/sys/fs/cgroup", path))
}

// seenFiles has the cgroup files that a container saw at its start.
type seenFiles map[string]string

func (s seenFiles) ReadFile(path string) ([]byte, error) {
	text, ok := s[filepath.Base(path)]
	if !ok {
		return nil, &os.PathError{Op: "open", Path: path, Err: os.ErrNotExist}
	}
	return []byte(text), nil
}

// cpuIDs parses a kernel list.
func cpuIDs(list string) []int {
	var ids []int
	for part := range strings.SplitSeq(list, ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		lo, errLo := strconv.Atoi(first)
		hi, errHi := strconv.Atoi(last)
		for id := lo; errLo == nil && errHi == nil && id <= hi; id++ {
			ids = append(ids, id)
		}
	}
	return ids
}

func sameCPUs(a, b string) bool { return len(cpuIDs(a)) > 0 && slices.Equal(cpuIDs(a), cpuIDs(b)) }

func overlap(a, b string) bool {
	return slices.ContainsFunc(cpuIDs(a), func(id int) bool { return slices.Contains(cpuIDs(b), id) })
}
