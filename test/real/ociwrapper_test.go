package real_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/test/real"
)

// wrapperHandler is a runtime handler whose OCI runtime is trimtab-oci, started by a script that names its settings.
func wrapperHandler(t *testing.T, decisions string) real.Option {
	t.Helper()
	dir := t.TempDir()
	program, script, settings := filepath.Join(dir, "trimtab-oci"), filepath.Join(dir, "wrapped"), filepath.Join(dir, "oci.json")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", program, "./cmd/trimtab-oci")
	cmd.Dir, cmd.Env = filepath.Join("..", ".."), append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build trimtab-oci: %v\n%s", err, out)
	}
	return real.WithOCIRuntime(func(runc string) string {
		text, err := json.Marshal(map[string]string{"runtime": runc, "decisions": decisions, "onError": "fail"})
		err = errors.Join(err, os.WriteFile(settings, text, 0o600),
			os.WriteFile(script, fmt.Appendf(nil, "#!/bin/sh\nTRIMTAB_OCI_SETTINGS=%s exec %s \"$@\"\n", settings, program), 0o700)) //nolint:gosec // it is a program
		if err != nil {
			t.Fatal(err)
		}
		return script
	})
}

// TestWrapper: values for which the CRI has no field take effect in a container. The CRI proxy leaves them
// for trimtab-oci, in front of a containerd whose NRI is off.
func TestWrapper(t *testing.T) {
	t.Parallel()
	decisions := filepath.Join(t.TempDir(), "oci")
	c := real.Start(t, real.WithoutNRI(), wrapperHandler(t, decisions))
	a := newTrimtab(t)
	a.configure(c, fmt.Sprintf(`attach: cri
cri: {endpoint: "unix://%s", socket: %s, ociWrapper: {enabled: true, directory: %s}}
authorization: [{kinds: [ulimits, io-priority, scheduler], namespaces: [default], decision: allow, mostCPUs: 0}]
hooks: {ulimits: {enabled: true}, ioPriority: {enabled: true}, scheduler: {enabled: true}}
`, c.Socket(), a.proxy(), decisions))
	a.run()
	a.attached()
	c.Through(a.proxy())
	answers(t, c)

	pod := c.RunPod(real.PodSpec{Name: "wrapped", Annotations: map[string]string{
		"ulimits.noderesource.dev/pod":     "- {type: core, hard: 512, soft: 256}",
		"io-priority.noderesource.dev/pod": "{class: IOPRIO_CLASS_BE, priority: 6}",
	}})
	id := c.RunContainer(pod, real.ContainerSpec{Name: "main"})
	limits, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", c.ContainerPID(id)))
	if err != nil || !strings.Contains(strings.Join(strings.Fields(string(limits)), " "), "Max core file size 256 512") {
		t.Errorf("limits: %s, %v", limits, err)
	}
	out, err := exec.CommandContext(t.Context(), "ionice", "-p", fmt.Sprint(c.ContainerPID(id))).CombinedOutput()
	if err != nil || strings.TrimSpace(string(out)) != "best-effort: prio 6" {
		t.Errorf("I/O priority: %s, %v", out, err)
	}
	if log := a.out.String(); strings.Contains(log, "trimtab-oci") {
		t.Errorf("the agent reports the wrapper:\n%s", log)
	}

	// A container without a decision is created as it is.
	other := c.RunContainer(c.RunPod(plain("plain", "")), real.ContainerSpec{Name: "main"})
	if _, err := os.Stat(filepath.Join(decisions, string(other)+".json")); err == nil {
		t.Error("there is a decision about a container that asks for nothing")
	}
}
