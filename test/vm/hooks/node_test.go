package hooks_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/trimtab/trimtab/internal/parity"
	"github.com/trimtab/trimtab/internal/sim"
	"github.com/trimtab/trimtab/internal/sim/effective"
	"github.com/trimtab/trimtab/internal/sim/scenario"
	"github.com/trimtab/trimtab/test/real/view"
	"github.com/trimtab/trimtab/test/vm"
	"github.com/trimtab/trimtab/test/vm/agent"
)

// proxySocket is the default socket of an agent with attach: cri.
const proxySocket = "/var/run/trimtab/cri.sock"

// machine is a guest with containerd and the agent. In place of a kubelet it makes pods' cgroups and calls the runtime.
type machine struct {
	t    *testing.T
	m    *vm.Machine
	cri  vm.CRI
	a    *agent.Agent
	pods map[scenario.Ref]*pod
	ctrs map[scenario.Ref]*container
	made *int // number of pods made, for their UIDs
	at   parity.Attachment
}

type pod struct {
	id, dir string // dir is the cgroup, from the hierarchies' roots
	config  *cri.PodSandboxConfig
}

type container struct {
	id, log string
	first   view.View
}

// start starts a guest and the agent in it.
func start(t *testing.T, g vm.Guest, config json.RawMessage) *machine {
	t.Helper()
	n := boot(t, g)
	if err := errors.Join(n.a.Configure(config), n.a.Run()); err != nil {
		t.Fatal(err)
	}
	return n
}

// boot starts a guest without the agent.
func boot(t *testing.T, g vm.Guest) *machine {
	t.Helper()
	g.Stage = vm.Containerd
	m := vm.Start(t, g)
	return &machine{t: t, m: m, cri: m.CRI(vm.CRISocket), a: agent.New(m), pods: map[scenario.Ref]*pod{}, ctrs: map[scenario.Ref]*container{}, made: new(int), at: parity.ByName("nri")}
}

// throughProxy reports whether kubelet calls go through the agent's CRI proxy.
func (n *machine) throughProxy() bool { return n.at.Name == "cri" }

// configure writes the agent's configuration.
func (n *machine) configure(keys json.RawMessage) error {
	keys, err := n.attaching(keys)
	return errors.Join(err, n.a.Configure(keys))
}

// reconfigure changes the configuration of the running agent.
func (n *machine) reconfigure(keys json.RawMessage) error {
	keys, err := n.attaching(keys)
	if err != nil {
		return err
	}
	return n.a.Reconfigure(keys)
}

// attaching adds the attachment to a scenario's keys.
func (n *machine) attaching(keys json.RawMessage) (json.RawMessage, error) {
	if n.at.Name == "nri" {
		return keys, nil // the default
	}
	all := map[string]json.RawMessage{}
	if len(keys) > 0 {
		if err := json.Unmarshal(keys, &all); err != nil {
			return nil, err
		}
	}
	if all == nil { // the keys were null
		all = map[string]json.RawMessage{}
	}
	all["attach"] = json.RawMessage(strconv.Quote(n.at.Name))
	return json.Marshal(all)
}

// attach starts the agent and connects the kubelet client.
func (n *machine) attach() error {
	if err := n.a.Run(); err != nil {
		return err
	}
	if n.throughProxy() {
		n.cri = n.m.CRI(proxySocket)
	}
	return n.answers()
}

// answers waits until the runtime answers the kubelet client.
func (n *machine) answers() error {
	return agent.Await(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		_, err := n.cri.Version(ctx, &cri.VersionRequest{})
		return err
	})
}

// of returns the machine, which reports failures to a subtest.
func (n *machine) of(t *testing.T) *machine {
	t.Helper()
	part := *n
	part.t, part.m = t, n.m.For(t)
	return &part
}

// call returns a context for a CRI call. A container with the smallest quota has a hundredth of an emulated CPU and
// takes minutes to start.
func call() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), 6*time.Minute)
}

// podDir returns a pod's cgroup by the kubelet's cgroup driver.
func (n *machine) podDir(qos, uid string) string {
	class := strings.ToLower(qos)
	if !n.m.Guest.Systemd {
		if qos == "Guaranteed" {
			return path.Join("kubepods", "pod"+uid)
		}
		return path.Join("kubepods", class, "pod"+uid)
	}
	unit := "kubepods-pod" + strings.ReplaceAll(uid, "-", "_") + ".slice"
	if qos == "Guaranteed" {
		return path.Join("kubepods.slice", unit)
	}
	above := "kubepods-" + class
	return path.Join("kubepods.slice", above+".slice", above+strings.TrimPrefix(unit, "kubepods"))
}

func (n *machine) runPod(p scenario.Pod, res scenario.Resources) error {
	ref := scenario.PodRef(p.Namespace, p.Name)
	*n.made++
	if p.UID == "" {
		p.UID = fmt.Sprintf("%08x-0000-4000-8000-%012x", *n.made, *n.made)
	}
	dir := n.podDir(p.QoS, p.UID)
	if err := n.makePod(dir, res); err != nil {
		return fmt.Errorf("cgroup of pod %s: %w", ref, err)
	}
	parent := "/" + dir
	if n.m.Guest.Systemd {
		parent = path.Base(dir)
	}
	labels := map[string]string{
		"io.kubernetes.pod.name": p.Name, "io.kubernetes.pod.namespace": p.Namespace, "io.kubernetes.pod.uid": p.UID,
	}
	maps.Copy(labels, p.Labels)
	config := &cri.PodSandboxConfig{
		Metadata:     &cri.PodSandboxMetadata{Name: p.Name, Namespace: p.Namespace, Uid: p.UID},
		LogDirectory: "/var/log/pods/" + p.UID, Labels: labels, Annotations: p.Annotations,
		Linux: &cri.LinuxPodSandboxConfig{CgroupParent: parent, Resources: resources(res),
			SecurityContext: &cri.LinuxSandboxSecurityContext{NamespaceOptions: &cri.NamespaceOption{
				Network: cri.NamespaceMode_NODE, Pid: cri.NamespaceMode_CONTAINER,
			}}},
	}
	ctx, cancel := call()
	defer cancel()
	answer, err := n.cri.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: config, RuntimeHandler: p.Handler})
	if err != nil {
		return fmt.Errorf("run pod %s: %w", ref, err)
	}
	n.pods[ref] = &pod{answer.PodSandboxId, dir, config}
	return nil
}

func (n *machine) create(ref scenario.Ref, c scenario.Container) error {
	p := n.pods[ref]
	if p == nil {
		return fmt.Errorf("no pod %s was made", ref)
	}
	namespace, name, _ := ref.Names()
	labels := map[string]string{
		"io.kubernetes.container.name": c.Name, "io.kubernetes.pod.name": name, "io.kubernetes.pod.namespace": namespace,
		"io.kubernetes.pod.uid": p.config.Metadata.Uid,
	}
	maps.Copy(labels, c.Labels)
	config := &cri.ContainerConfig{
		Metadata: &cri.ContainerMetadata{Name: c.Name}, Image: &cri.ImageSpec{Image: vm.Image("probe")}, Args: c.Args,
		Labels: labels, Annotations: c.Annotations, LogPath: c.Name + ".log", Linux: &cri.LinuxContainerConfig{Resources: resources(c.Resources)},
	}
	for _, key := range slices.Sorted(maps.Keys(c.Env)) {
		config.Envs = append(config.Envs, &cri.KeyValue{Key: key, Value: []byte(c.Env[key])})
	}
	ctx, cancel := call()
	defer cancel()
	answer, err := n.cri.CreateContainer(ctx, &cri.CreateContainerRequest{PodSandboxId: p.id, Config: config, SandboxConfig: p.config})
	if err != nil {
		return fmt.Errorf("create %s: %w", ref.In(c.Name), err)
	}
	n.ctrs[ref.In(c.Name)] = &container{id: answer.ContainerId, log: p.config.LogDirectory + "/" + config.LogPath}
	return nil
}

// start starts a created container and waits for the probe's report.
func (n *machine) start(ref scenario.Ref) error {
	c := n.ctrs[ref]
	if c == nil {
		return fmt.Errorf("no container %s was made", ref)
	}
	ctx, cancel := call()
	defer cancel()
	if _, err := n.cri.StartContainer(ctx, &cri.StartContainerRequest{ContainerId: c.id}); err != nil {
		return fmt.Errorf("start %s: %w", ref, err)
	}
	return agent.Await(func() error {
		b, err := n.m.Get(c.log)
		if err != nil {
			return err
		}
		line, ok := firstLine(string(b))
		if !ok {
			return fmt.Errorf("%s has not printed its report", ref)
		}
		return json.Unmarshal([]byte(line), &c.first)
	})
}

// firstLine parses the CRI's log format: time, stream, F or P (the next entry continues the line), text.
func firstLine(text string) (string, bool) {
	var line strings.Builder
	for entry := range strings.Lines(text) {
		fields := strings.SplitN(strings.TrimSuffix(entry, "\n"), " ", 4)
		if len(fields) < 4 || fields[1] != "stdout" || !strings.HasSuffix(entry, "\n") {
			continue
		}
		line.WriteString(fields[3])
		if fields[2] == "F" {
			return line.String(), true
		}
	}
	return "", false
}

func (n *machine) update(ref scenario.Ref, res scenario.Resources) error {
	ctx, cancel := call()
	defer cancel()
	_, err := n.cri.UpdateContainerResources(ctx, &cri.UpdateContainerResourcesRequest{ContainerId: n.ctrs[ref].id, Linux: resources(res)})
	return err
}

func (n *machine) stop(ref scenario.Ref) error {
	ctx, cancel := call()
	defer cancel()
	if ref.Container() != "" {
		_, err := n.cri.StopContainer(ctx, &cri.StopContainerRequest{ContainerId: n.ctrs[ref].id})
		return err
	}
	_, err := n.cri.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: n.pods[ref].id})
	return err
}

func (n *machine) remove(ref scenario.Ref) error {
	if err := n.stop(ref); err != nil {
		return err
	}
	ctx, cancel := call()
	defer cancel()
	if ref.Container() != "" {
		_, err := n.cri.RemoveContainer(ctx, &cri.RemoveContainerRequest{ContainerId: n.ctrs[ref].id})
		delete(n.ctrs, ref)
		return err
	}
	p := n.pods[ref]
	if _, err := n.cri.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: p.id}); err != nil {
		return err
	}
	for c := range n.ctrs {
		if c.Pod() == ref {
			delete(n.ctrs, c)
		}
	}
	delete(n.pods, ref)
	return n.removePod(p.dir)
}

// state returns the effective state of a container or, for namespace/pod alone, of a pod. The string is created,
// running or stopped.
func (n *machine) state(ref scenario.Ref) (effective.State, vm.Files, string, error) {
	if ref.Container() == "" {
		p := n.pods[ref]
		if p == nil {
			return effective.State{}, nil, "", fmt.Errorf("no pod %s was made", ref)
		}
		s, files, err := n.cgroup(p.dir)
		return s, files, "", err
	}
	c := n.ctrs[ref]
	if c == nil {
		return effective.State{}, nil, "", fmt.Errorf("no container %s was made", ref)
	}
	ctx, cancel := call()
	defer cancel()
	answer, err := n.cri.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: c.id, Verbose: true})
	if err != nil {
		return effective.State{}, nil, "", err
	}
	var info struct {
		RuntimeSpec *specs.Spec
	}
	if err := json.Unmarshal([]byte(answer.Info["info"]), &info); err != nil {
		return effective.State{}, nil, "", err
	}
	name := map[cri.ContainerState]string{
		cri.ContainerState_CONTAINER_CREATED: "created", cri.ContainerState_CONTAINER_RUNNING: "running", cri.ContainerState_CONTAINER_EXITED: "stopped",
	}[answer.Status.State]
	if name != "running" {
		return effective.PlannedState(info.RuntimeSpec, !n.m.Guest.CgroupV1), nil, name, nil
	}
	s, files, err := n.cgroup(n.containerDir(ref.Pod(), c.id))
	s = s.WithSpec(info.RuntimeSpec)
	s.CDI = givenCDI(s.Env)
	return s, files, name, err
}

func (n *machine) containerDir(pod scenario.Ref, id string) string {
	if n.m.Guest.Systemd {
		id = "cri-containerd-" + id + ".scope"
	}
	return path.Join(n.pods[pod].dir, id)
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
	for _, size := range slices.Sorted(maps.Keys(r.HugePages)) {
		out.HugepageLimits = append(out.HugepageLimits, &cri.HugepageLimit{PageSize: size, Limit: r.HugePages[size]})
	}
	return out
}

// run starts a pod and its containers one after another.
func (n *machine) run(r *scenario.Run) error {
	res := sim.SumResources(r.Pod.QoS, r.Containers)
	if r.Pod.Resources != nil {
		res = *r.Pod.Resources
	}
	if err := n.runPod(r.Pod, res); err != nil {
		return err
	}
	ref := scenario.PodRef(r.Pod.Namespace, r.Pod.Name)
	for _, c := range r.Containers {
		if err := n.create(ref, c); err != nil {
			return err
		}
		if err := n.start(ref.In(c.Name)); err != nil {
			return err
		}
	}
	return nil
}
