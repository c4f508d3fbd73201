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
	"time"

	"github.com/trimtab/trimtab/test/real"
)

// wrapperHandler is a runtime handler whose OCI runtime is trimtab-oci, started by a script that names its settings.
func wrapperHandler(t *testing.T, decisions string) real.Option {
	t.Helper()
	dir := t.TempDir()
	program, script, settings := filepath.Join(dir, "trimtab-oci"), filepath.Join(dir, "wrapped"), settingsOf(decisions)
	buildWrapper(t, program)
	return real.WithOCIRuntime(func(runc string) string {
		text, err := json.Marshal(map[string]string{"runtime": runc, "decisions": decisions, "onError": "fail"})
		err = errors.Join(err, os.WriteFile(settings, text, 0o600),
			os.WriteFile(script, fmt.Appendf(nil, "#!/bin/sh\nTRIMTAB_OCI_SETTINGS=%s exec %s \"$@\"\n", settings, program), 0o700)) //nolint:gosec // the file is a program
		if err != nil {
			t.Fatal(err)
		}
		return script
	})
}

// settingsOf is the file of the wrapper's settings.
func settingsOf(decisions string) string { return decisions + ".settings" }

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

	byWrapper(t, a, "wrapped", true, "")

	// The runtime reports none of it, so a new agent learns it from the decisions and their results.
	a.kill()
	a.run()
	a.attached()
	byWrapper(t, a, "wrapped", true, "applied at an earlier time")

	// A container without a decision is created as it is.
	other := c.RunContainer(c.RunPod(plain("plain", "")), real.ContainerSpec{Name: "main"})
	if _, err := os.Stat(filepath.Join(decisions, string(other)+".json")); err == nil {
		t.Error("there is a decision about a container that asks for nothing")
	}
}

// TestWrapperFails has the wrapper refuse its directory, into which others may write. By its setting onError it fails
// closed or open, and explain says what the container goes without.
func TestWrapperFails(t *testing.T) {
	t.Parallel()
	decisions := filepath.Join(t.TempDir(), "oci")
	c := real.Start(t, real.WithoutNRI(), wrapperHandler(t, decisions))
	a := newTrimtab(t)
	a.configure(c, fmt.Sprintf(`attach: cri
cri: {endpoint: "unix://%s", socket: %s, ociWrapper: {enabled: true, directory: %s}}
authorization: [{kinds: [ulimits], namespaces: [default], decision: allow, mostCPUs: 0}]
hooks: {ulimits: {enabled: true}}
`, c.Socket(), a.proxy(), decisions))
	a.run()
	a.attached()
	c.Through(a.proxy())
	answers(t, c)
	limited := func(name string) real.PodSpec {
		return real.PodSpec{Name: name, Annotations: map[string]string{"ulimits.noderesource.dev/pod": "- {type: core, hard: 512, soft: 256}"}}
	}

	closed := c.CreateContainer(c.RunPod(limited("closed")), real.ContainerSpec{Name: "main"})
	byWrapper(t, a, "closed", false, "trimtab-oci sets the value when the container starts")
	if err := os.Chmod(decisions, 0o777); err != nil { //nolint:gosec // the fault of this test
		t.Fatal(err)
	}
	if err := c.TryStartContainer(closed); err == nil || !strings.Contains(err.Error(), "trimtab-oci: directory "+decisions) {
		t.Errorf("a container starts without its decision: %v", err)
	}

	settings, err := os.ReadFile(settingsOf(decisions))
	err = errors.Join(err, os.WriteFile(settingsOf(decisions), []byte(strings.Replace(string(settings), `"fail"`, `"ignore"`, 1)), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	open := c.CreateContainer(c.RunPod(limited("open")), real.ContainerSpec{Name: "main"})
	c.StartContainer(open)
	byWrapper(t, a, "open", false, "trimtab-oci could not apply the decision: directory "+decisions)
	limits, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", c.ContainerPID(open)))
	if err != nil || strings.Contains(strings.Join(strings.Fields(string(limits)), " "), "Max core file size 256 512") {
		t.Errorf("limits: %s, %v", limits, err)
	}
}

// byWrapper waits until explain says of the limits of a pod's container whether they are in force, and why.
func byWrapper(t *testing.T, a *trimtab, pod string, applied bool, note string) {
	t.Helper()
	real.Eventually(t, time.Minute, func() error {
		found, err := a.explained("default", pod, "main")
		if err != nil || len(found) != 1 {
			return fmt.Errorf("%d containers are explained, %w", len(found), err)
		}
		for _, v := range found[0].Values {
			if v.Field == "rlimit RLIMIT_CORE" && v.Applied == applied && strings.HasPrefix(v.Note, note) {
				return nil
			}
		}
		return fmt.Errorf("want applied %v, %q; have %+v", applied, note, found[0].Values)
	})
}
