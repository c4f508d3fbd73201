package real_test

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/trimtab/trimtab/test/real"
)

// cli runs a command of the program.
func (a *trimtab) cli(args ...string) (string, error) {
	out, err := exec.Command(a.path, append(args, "--socket", a.socket())...).CombinedOutput()
	return string(out), err
}

// one returns explain's report of the only container of a pod.
func (a *trimtab) one(namespace, pod string) explanation {
	a.t.Helper()
	found := a.explain(namespace, pod, "")
	if len(found) != 1 {
		a.t.Fatalf("explain %s/%s reports %d containers", namespace, pod, len(found))
	}
	return found[0]
}

// TestStartedWithoutAgent starts pods while no agent runs. An agent that starts later applies the values that a running
// container can get, and reports the reason for the others.
func TestStartedWithoutAgent(t *testing.T) {
	t.Parallel()
	needTwoCPUs(t)
	c := real.Start(t)
	needV1(t, c)
	silent := c.RunContainer(c.RunPod(plain("silent", "")), real.ContainerSpec{Name: "silent"})
	spec := owning("db", "1")
	spec.Annotations[devices] = `{"gpu":[{"minor":0}]}`
	ownerPod := c.RunPod(spec)
	owner := c.RunContainer(ownerPod, real.ContainerSpec{Name: "db", Resources: oneCPU})
	batchPod := c.RunPod(real.PodSpec{Namespace: "shop", Name: "batch", Labels: labels("BE"), Annotations: map[string]string{
		extended: `{"containers":{"a":{"requests":{"kubernetes.io/batch-cpu":"500"},"limits":{"kubernetes.io/batch-cpu":"500","kubernetes.io/batch-memory":"64Mi"}}}}`,
	}})
	batch := c.RunContainer(batchPod, real.ContainerSpec{Name: "a", Resources: &cri.LinuxContainerResources{CpuShares: 2, CpuPeriod: 100_000}})
	waiting := c.CreateContainer(c.RunPod(plain("late", "")), real.ContainerSpec{Name: "late"})
	seen := c.FirstView(owner)
	same(t, "affinity without an agent", seen.Affinity, "0-1")
	same(t, "quota without an agent", seen.Cgroup["cpu.cfs_quota_us"], "100000")
	pid := c.ContainerPID(owner)

	a := startTrimtab(t, c, "")
	all := named{"owner": owner, "silent": silent, "batch": batch}
	all.become(t, c, "cpuset.cpus", map[string]string{"owner": "1", "silent": "0", "batch": "0"})
	all.become(t, c, "cpu.cfs_quota_us", map[string]string{"owner": "-1", "silent": "-1", "batch": "50000"})
	all.become(t, c, "memory.limit_in_bytes", map[string]string{"batch": fmt.Sprint(64 << 20)})
	same(t, "quota of the owner's pod", c.PodKernelFile(ownerPod, "cpu.cfs_quota_us"), "-1")
	same(t, "shares of the batch pod", c.PodKernelFile(batchPod, "cpu.shares"), "512")
	same(t, "process", c.ContainerPID(owner), pid)
	c.StartContainer(waiting)
	same(t, "affinity of a container created without an agent", c.FirstView(waiting).Affinity, "0")

	reported := false
	for _, v := range a.one("shop", "db").Values {
		switch {
		case strings.Contains(v.Field, "NVIDIA_VISIBLE_DEVICES"):
			reported = !v.Applied && strings.Contains(v.Note, "created again") && v.Why.Hook == "gpu" && v.Why.Source == devices
		case !v.Applied || v.Channel != "kernel":
			t.Errorf("explain says %+v", v)
		}
	}
	if !reported {
		t.Errorf("explain does not say why the GPU is not there: %+v", a.one("shop", "db").Values)
	}
	if out, err := a.cli("explain", "shop/db"); err != nil || !strings.Contains(out, "NO") || !strings.Contains(out, "created again") {
		t.Errorf("explain (%v):\n%s", err, out)
	}
	// Adopted values survive a restart.
	before := snapshot(c, all)
	a.kill()
	a.run()
	a.attached()
	same(t, "after a restart of the agent", fmt.Sprint(snapshot(c, all)), fmt.Sprint(before))
	c.RemovePod(ownerPod)
	all["late"] = waiting
	all.become(t, c, "cpuset.cpus", map[string]string{"silent": "0-1", "batch": "0-1", "late": "0-1"})
}

// malformed has malformed annotations with a part of the problem that the agent reports for each.
var malformed = []struct{ name, class, key, value, reason string }{
	{"json", "LSR", assigned, `{"cpuset":"1"`, "malformed JSON"},
	{"list", "LSR", assigned, `{"cpuset":"1-0"}`, "the end is below the start"},
	{"cpu", "LSR", assigned, `{"cpuset":"64"}`, "64"},
	{"units", "BE", extended, `{"containers":{"a":{"limits":{"kubernetes.io/batch-cpu":"half"}}}}`, "not a quantity"},
	{"gpu", "", devices, `{"gpu":"all"}`, ""},
	{"class", "lsr", "", "", "not a QoS class"},
}

// TestMalformed: the pod runs with defaults and explain reports why; in strict mode its creation fails with that
// problem.
func TestMalformed(t *testing.T) {
	t.Parallel()
	needTwoCPUs(t)
	c := real.Start(t)
	needV1(t, c)
	a := startTrimtab(t, c, "")
	pods := map[string]real.PodID{}
	for _, m := range malformed {
		spec := plain(m.name, m.class)
		if m.key != "" {
			spec.Annotations = map[string]string{m.key: m.value}
		}
		pods[m.name] = c.RunPod(spec)
		id := c.RunContainer(pods[m.name], real.ContainerSpec{Name: "a", Resources: oneCPU})
		seen := c.FirstView(id)
		same(t, m.name+": affinity", seen.Affinity, "0-1")
		same(t, m.name+": quota", seen.Cgroup["cpu.cfs_quota_us"], "100000")
		same(t, m.name+": memory", seen.Cgroup["memory.limit_in_bytes"], fmt.Sprint(oneCPU.MemoryLimitInBytes))
		problems := a.one("shop", m.name).Problems
		all := fmt.Sprintf("%+v", problems)
		for i := len(problems) - 1; i >= 0; i-- { // further problems of a class without CPUs, and of a pod without a spec
			if problems[i].Warning || problems[i].Unserved {
				problems = append(problems[:i], problems[i+1:]...)
			}
		}
		if len(problems) != 1 || !strings.Contains(problems[0].Reason, m.reason) || problems[0].Key == "" || problems[0].Value == "" {
			t.Errorf("%s: explain says %s, want one error, with %q", m.name, all, m.reason)
		}
	}
	silent := c.RunPod(plain("silent", ""))
	a.configure(c, "strict: true")
	a.generation(2)
	for _, m := range malformed {
		_, err := c.TryCreateContainer(pods[m.name], real.ContainerSpec{Name: "strict", Resources: oneCPU})
		if err == nil || !strings.Contains(err.Error(), "trimtab: ") || !strings.Contains(err.Error(), m.reason) {
			t.Errorf("%s: in strict mode creation says %v, want %q", m.name, err, m.reason)
		}
		t.Logf("%s: %v", m.name, err)
	}
	c.RunContainer(silent, real.ContainerSpec{Name: "silent"})
	good := c.RunContainer(c.RunPod(owning("good", "1")), real.ContainerSpec{Name: "db", Resources: oneCPU})
	same(t, "affinity of a good pod in strict mode", c.FirstView(good).Affinity, "1")
	if _, err := c.TryCreateContainer(c.RunPod(owning("second", "1")), real.ContainerSpec{Name: "db"}); err == nil || !strings.Contains(err.Error(), "owned by shop/good") {
		t.Errorf("a second claimant in strict mode: %v", err)
	}
	if out, err := a.cli("explain", "shop/nobody"); err == nil {
		t.Errorf("explain of an unknown pod:\n%s", out)
	}
}
