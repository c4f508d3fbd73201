package kubelet_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/trimtab/trimtab/internal/sim/effective"
	"github.com/trimtab/trimtab/internal/topology"
	"github.com/trimtab/trimtab/test/vm"
	"github.com/trimtab/trimtab/test/vm/agent"
)

const (
	kubeletRoot   = "/var/lib/kubelet"
	kubeletConfig = kubeletRoot + "/config.yaml" // where doctor looks
	manifests     = "/etc/kubernetes/manifests"
	cgroups       = "/sys/fs/cgroup"
	// A container with little CPU time takes long to start in an emulated machine.
	patience = agent.AwaitTimeout
)

// node is a guest with containerd, the agent and a kubelet.
type node struct {
	t   *testing.T
	m   *vm.Machine
	cri vm.CRI
	a   *agent.Agent
	pid int // of the kubelet
	// patience bounds each wait; 0 means the constant.
	patience time.Duration
	// join are the kubelet's flags by which it joins a cluster; without any it is alone.
	join []string
}

// boot starts a guest, the agent and then the kubelet. Keys are added to the kubelet's configuration.
func boot(t *testing.T, config, kubelet map[string]any) *node {
	t.Helper()
	m := vm.Start(t, vm.Guest{Stage: vm.Containerd})
	n := &node{t: t, m: m, cri: m.CRI(vm.CRISocket), a: agent.New(m)}
	keys, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(n.a.Configure(keys), n.a.Run()); err != nil {
		t.Fatal(err)
	}
	n.configure(kubelet)
	n.run()
	return n
}

// configure writes the kubelet's configuration. JSON is valid YAML.
func (n *node) configure(keys map[string]any) {
	n.t.Helper()
	all := map[string]any{
		"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
		"containerRuntimeEndpoint": "unix://" + vm.CRISocket, "cgroupDriver": "cgroupfs", "staticPodPath": manifests,
		"authentication": map[string]any{"anonymous": map[string]any{"enabled": true}, "webhook": map[string]any{"enabled": false}},
		"authorization":  map[string]any{"mode": "AlwaysAllow"},
		"failSwapOn":     false, "makeIPTablesUtilChains": false, "resolvConf": "",
		"enforceNodeAllocatable": []string{"pods"}, "evictionHard": map[string]any{"memory.available": "50Mi"},
		"imageGCHighThresholdPercent": 100, "fileCheckFrequency": "1s", "syncFrequency": "10s", "runtimeRequestTimeout": "5m",
	}
	maps.Copy(all, keys)
	text, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		n.t.Fatal(err)
	}
	n.m.Put(kubeletConfig, 0o644, text)
	n.m.Run("mkdir", "-p", manifests)
}

// run starts the kubelet and waits until it is healthy.
func (n *node) run() {
	n.t.Helper()
	join := n.join
	if len(join) == 0 {
		join = []string{"--hostname-override=node"}
	}
	n.pid = n.m.Spawn("kubelet", append([]string{
		"/usr/local/bin/kubelet", "--config=" + kubeletConfig, "--node-ip=10.0.2.15",
		"--root-dir=" + kubeletRoot, "--cert-dir=" + kubeletRoot + "/pki", "--v=2",
	}, join...)...)
	web := http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return n.m.Dial(ctx, "tcp", "127.0.0.1:10248")
		}, DisableKeepAlives: true,
	}}
	n.await("kubelet", func() error {
		answer, err := web.Get("http://kubelet/healthz")
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		if text, err := io.ReadAll(answer.Body); err != nil || string(text) != "ok" {
			return fmt.Errorf("%s: %s (%w)", answer.Status, text, err)
		}
		return nil
	})
}

// end ends the kubelet; its pods continue to run.
func (n *node) end() {
	n.t.Helper()
	n.m.Sh(fmt.Sprintf("kill %[1]d; i=0; while [ -d /proc/%[1]d ]; do sleep 0.1; i=$((i+1)); [ $i -lt 300 ]; done", n.pid))
}

// await waits until there is no error.
func (n *node) await(what string, look func() error) {
	n.t.Helper()
	deadline := time.Now().Add(cmp.Or(n.patience, patience))
	for {
		err := look()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			n.t.Fatalf("%s: %v", what, err)
		}
		time.Sleep(200 * time.Millisecond) // the interval of polling a guest; the condition decides when it ends
	}
}

// pod is a static pod of one container.
type pod struct {
	name                string
	labels, annotations map[string]string
	requests, limits    map[string]string
}

// apply gives manifests to the kubelet, which reads a folder without notification every second.
func (n *node) apply(pods ...pod) {
	n.t.Helper()
	for _, p := range pods {
		text, err := json.Marshal(map[string]any{
			"apiVersion": "v1", "kind": "Pod",
			"metadata": map[string]any{"name": p.name, "namespace": "shop", "labels": p.labels, "annotations": p.annotations},
			"spec": map[string]any{
				"hostNetwork": true, "terminationGracePeriodSeconds": 1, // a guest has no CNI
				"containers": []any{map[string]any{
					"name": "c", "image": vm.Image("probe"), "imagePullPolicy": "Never",
					"resources": map[string]any{"requests": p.requests, "limits": p.limits},
				}},
			},
		})
		if err != nil {
			n.t.Fatal(err)
		}
		n.m.Put(path.Join(manifests, p.name+".json"), 0o644, text)
	}
}

// running is a container as the runtime and the kernel have it.
type running struct {
	id, uid  string
	attempt  uint32
	pod, own effective.State // values of the pod's cgroup and the container's
	procs    string
}

// look reads one container of a static pod.
func (n *node) look(name string) (running, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	// A kubelet appends the node's name to the name of a static pod.
	answer, err := n.cri.ListContainers(ctx, &cri.ListContainersRequest{Filter: &cri.ContainerFilter{
		State:         &cri.ContainerStateValue{State: cri.ContainerState_CONTAINER_RUNNING},
		LabelSelector: map[string]string{"io.kubernetes.pod.name": static(name)},
	}})
	if err != nil {
		return running{}, err
	}
	if len(answer.Containers) != 1 {
		return running{}, fmt.Errorf("%d containers of %s run", len(answer.Containers), static(name))
	}
	c := answer.Containers[0]
	r := running{id: c.Id, uid: c.Labels["io.kubernetes.pod.uid"], attempt: c.Metadata.Attempt}
	dir := strings.TrimSpace(n.m.Sh("cd " + cgroups + "; find kubepods -type d -name pod" + r.uid + " 2>/dev/null || true")) // another pod may be removed meanwhile
	if dir == "" {
		return r, fmt.Errorf("pod %s has no cgroup", r.uid)
	}
	own := path.Join(dir, r.id)
	files, err := n.m.Files(append(below(dir), below(own)...)...)
	if err != nil {
		return r, err
	}
	r.procs = strings.TrimSpace(string(files[path.Join(cgroups, own, "cgroup.procs")]))
	if r.pod, err = effective.ReadCgroup(rooted(files), true, dir); err != nil {
		return r, err
	}
	r.own, err = effective.ReadCgroup(rooted(files), true, own)
	return r, err
}

func static(name string) string { return name + "-node" }

func below(dir string) []string {
	var all []string
	for _, name := range []string{"cpuset.cpus", "cpuset.cpus.effective", "cpuset.mems", "cpuset.mems.effective", "cpu.weight", "cpu.max", "memory.max", "cgroup.procs"} {
		all = append(all, path.Join(cgroups, dir, name))
	}
	return all
}

// rooted reads paths relative to the hierarchy's mount point.
type rooted vm.Files

func (r rooted) ReadFile(name string) ([]byte, error) {
	return vm.Files(r).ReadFile(path.Join(cgroups, name))
}

// want has the expected values of a container; missing ones may be anything.
type want struct {
	cpus                 string
	shares               uint64
	quota                int64 // 0 for any value
	podShares            uint64
	podQuota, podMemory  int64
	memory               int64
	class, seat, problem string
	source               string // of the pod's spec
}

// unmet returns the expected values that are not in force.
func (n *node) unmet(name string, w want) (running, error) {
	r, err := n.look(name)
	if err != nil {
		return r, err
	}
	var notes []string
	number := func(what string, got, want int64) {
		if want != 0 && got != want {
			notes = append(notes, fmt.Sprintf("%s is %d, wanted %d", what, got, want))
		}
	}
	if w.cpus != "" && !sameList(r.own.CPUs, w.cpus) {
		notes = append(notes, fmt.Sprintf("cpus are %q, wanted %q", r.own.CPUs, w.cpus))
	}
	if w.shares != 0 && !r.own.HasShares(w.shares) && r.own.Shares != curve[w.shares] {
		notes = append(notes, fmt.Sprintf("weight is %d, wanted that of %d shares", r.own.Shares, w.shares))
	}
	if w.podShares != 0 && !r.pod.HasShares(w.podShares) {
		notes = append(notes, fmt.Sprintf("weight of the pod is %d, wanted that of %d shares", r.pod.Shares, w.podShares))
	}
	number("quota", r.own.Quota, w.quota)
	number("quota of the pod", r.pod.Quota, w.podQuota)
	number("memory limit", r.own.Memory, w.memory)
	number("memory limit of the pod", r.pod.Memory, w.podMemory)
	told, err := n.a.Explain("shop", static(name), "c")
	if err != nil {
		return r, err
	}
	// A creation whose answer never reached the kubelet leaves a container that never starts; the kubelet
	// creates another.
	told = slices.DeleteFunc(told, func(c agent.Explanation) bool { return c.State != "running" })
	if len(told) != 1 {
		return r, fmt.Errorf("the agent tells of %d such containers that run", len(told))
	}
	if w.class != "" && told[0].Class != w.class {
		notes = append(notes, fmt.Sprintf("class is %s, wanted %s", told[0].Class, w.class))
	}
	if w.seat != "" && told[0].Seat != w.seat {
		notes = append(notes, fmt.Sprintf("seat is %s, wanted %s", told[0].Seat, w.seat))
	}
	for _, f := range told[0].Facts {
		if f.Fact == "QoS" && w.source != "" && f.From != w.source {
			notes = append(notes, fmt.Sprintf("its QoS class is known from %s, wanted %s", f.From, w.source))
		}
	}
	said := fmt.Sprint(told[0].Problems)
	if w.problem == "" && len(told[0].Problems) > 0 || !strings.Contains(said, w.problem) {
		notes = append(notes, fmt.Sprintf("problems are %s, wanted %q", said, w.problem))
	}
	if len(notes) > 0 {
		return r, fmt.Errorf("%s: %s; attempt %d, id %s, facts %v", name, strings.Join(notes, "; "), r.attempt, r.id, told[0].Facts)
	}
	return r, nil
}

// awaitAll waits until all expected values are in force.
func (n *node) awaitAll(when string, wants map[string]want) map[string]running {
	n.t.Helper()
	begun := time.Now()
	all := map[string]running{}
	for _, name := range slices.Sorted(maps.Keys(wants)) {
		n.await(when, func() (err error) {
			all[name], err = n.unmet(name, wants[name])
			return err
		})
	}
	n.t.Logf("%s: %d pods have what they were promised (%.1f s)", when, len(wants), time.Since(begun).Seconds())
	return all
}

// curve has weights as runc computes them from shares since 1.4 (opencontainers/cgroups 0.0.4,
// ConvertCPUSharesToCgroupV2Value); the kubelet and Trimtab use the older, linear map.
var curve = map[uint64]uint64{512: 59}

func sameList(a, b string) bool {
	x, errA := topology.ParseList(a)
	y, errB := topology.ParseList(b)
	return errA == nil && errB == nil && slices.Equal(x, y)
}

// doctor returns one check of `trimtab doctor` in the guest.
func (n *node) doctor(check string) (result, found string) {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	r, err := n.m.Exec(ctx, agent.Program, "doctor", "--config", agent.ConfigFile, "-o", "json")
	if err != nil {
		n.t.Fatal(err)
	}
	var all struct {
		Checks []struct{ Check, Result, Found string }
	}
	if err := json.Unmarshal([]byte(r.Stdout), &all); err != nil {
		n.t.Fatalf("doctor (exit %d): %v\n%s%s", r.Code, err, r.Stdout, r.Stderr)
	}
	for _, c := range all.Checks {
		if c.Check == check {
			return c.Result, c.Found
		}
	}
	n.t.Fatalf("doctor has no check %q: %s", check, r.Stdout)
	return "", ""
}
