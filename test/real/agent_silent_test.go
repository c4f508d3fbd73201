package real_test

import (
	"context"
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/trimtab/trimtab/test/real"
)

// TestSilentSpec compares the OCI spec of a container without requests byte by byte with and without an agent (I5).
// While another container owns a CPU, only the cpuset and the record of the original resources may differ.
func TestSilentSpec(t *testing.T) {
	t.Parallel()
	needTwoCPUs(t)
	c := real.Start(t)
	spec := plain("silent", "")
	spec.UID = "5f0c6c3e-0000-4000-8000-000000000005"
	spec.Labels, spec.Annotations = map[string]string{"app": "web"}, map[string]string{"note": "nothing for us"}
	ask := real.ContainerSpec{
		Name: "web", Env: map[string]string{"ROLE": "front"}, Annotations: map[string]string{"a": "b"},
		Resources: &cri.LinuxContainerResources{CpuShares: 512, CpuPeriod: 100_000, CpuQuota: 50_000, MemoryLimitInBytes: 64 << 20},
	}
	made := func() string {
		pod := c.RunPod(spec)
		id := c.RunContainer(pod, ask)
		text := ociSpec(t, c, pod, id)
		c.RemovePod(pod)
		return text
	}
	without := made()
	startTrimtab(t, c, "")
	if with := made(); with != without {
		t.Errorf("without an agent\n%s\nwith one\n%s", without, with)
	}
	owner := c.RunPod(owning("db", "1"))
	c.RunContainer(owner, real.ContainerSpec{Name: "db", Resources: oneCPU})
	beside := made()
	for _, ours := range []string{`"cpus":"0"`, `"trimtab.io/record":`} {
		if !strings.Contains(beside, ours) || strings.Contains(without, ours) {
			t.Errorf("beside an owner the spec should have %s:\n%s", ours, beside)
		}
	}
	c.RemovePod(owner)
	if after := made(); after != without {
		t.Errorf("after an owner\n%s\nwant\n%s", after, without)
	}
}

// ociSpec returns the runtime's spec of a container as text, without the ids, which differ between attempts.
func ociSpec(t *testing.T, c *real.Containerd, pod real.PodID, id real.ContainerID) string {
	t.Helper()
	answer, err := c.CRI().ContainerStatus(context.Background(), &cri.ContainerStatusRequest{ContainerId: string(id), Verbose: true})
	if err != nil {
		t.Fatal(err)
	}
	var info struct{ RuntimeSpec json.RawMessage }
	if err := json.Unmarshal([]byte(answer.Info["info"]), &info); err != nil {
		t.Fatal(err)
	}
	if len(info.RuntimeSpec) == 0 {
		t.Fatal("the runtime reports no spec")
	}
	text := strings.NewReplacer(string(id), "CONTAINER", string(pod), "POD").Replace(string(info.RuntimeSpec))
	return regexp.MustCompile(`/proc/\d+/ns/`).ReplaceAllString(text, "/proc/SANDBOX/ns/")
}
