package real_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/trimtab/trimtab/test/real"
)

// hookFiles makes a program that creates a file with the name of its argument, and hooks that run it: one
// for every container, one for pods that request it, and one at the end of containers that match a
// condition. It returns the directories of the hooks and of the created files.
func hookFiles(t *testing.T, ends string) (dir, left string) {
	t.Helper()
	dir, left = t.TempDir(), t.TempDir()
	program := filepath.Join(t.TempDir(), "hook")
	file := func(name, args, when, stages string) error {
		return os.WriteFile(filepath.Join(dir, name), fmt.Appendf(nil,
			`{"version": "1.0.0", "hook": {"path": %q, "args": ["hook", %q], "timeout": 10}, "when": %s, "stages": [%s]}`, program, args, when, stages), 0o600)
	}
	err := errors.Join(
		os.WriteFile(program, fmt.Appendf(nil, "#!/bin/sh\nexec /bin/cat >> %s/\"$1\"\n", left), 0o700), //nolint:gosec // the file is a program
		file("10-always.json", "always", `{"always": true}`, `"createRuntime"`),
		file("20-asked.json", "asked", `{"annotations": {"^trace\\.example/on$": "^yes$"}}`, `"createRuntime"`),
		file("30-ends.json", "ends", ends, `"poststop"`),
	)
	if err != nil {
		t.Fatal(err)
	}
	return dir, left
}

const hooksOn = `authorization: [{kinds: [oci-hooks], namespaces: [default], decision: allow, mostCPUs: 0}]
hooks: {ociHooks: {enabled: true, directories: [%s]}}
`

// TestOCIHooks makes containerd run the OCI hooks of a directory, as the NRI plugin hook-injector does.
// Hooks that a pod requests run only if a rule allows it.
func TestOCIHooks(t *testing.T) {
	t.Parallel()
	c, a := real.Start(t), newTrimtab(t)
	dir, left := hookFiles(t, `{"hasBindMounts": true, "commands": ["."]}`)
	a.configure(c, fmt.Sprintf(hooksOn, dir))
	a.run()
	a.attached()
	playHooks(t, c, left)

	// A file that is added later applies to later containers.
	text, err := os.ReadFile(filepath.Join(dir, "10-always.json"))
	if err != nil {
		t.Fatal(err)
	}
	text = bytes.Replace(text, []byte(`"hook", "always"`), []byte(`"hook", "late"`), 1)
	if err := os.WriteFile(filepath.Join(dir, "40-late.json"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	for i, deadline := 0, time.Now().Add(time.Minute); sizeOf(left, "late") == 0; i++ {
		if time.Now().After(deadline) {
			t.Fatal("the new hook did not run within a minute")
		}
		c.RunContainer(c.RunPod(plain(fmt.Sprint("late", i), "")), real.ContainerSpec{Name: "main"})
	}
}

// TestOCIHooksByWrapper does the same behind the CRI proxy, in front of a containerd whose NRI is off.
func TestOCIHooksByWrapper(t *testing.T) {
	t.Parallel()
	decisions := filepath.Join(t.TempDir(), "oci")
	c, a := real.Start(t, real.WithoutNRI(), wrapperHandler(t, decisions)), newTrimtab(t)
	dir, left := hookFiles(t, `{"always": true}`) // the CRI does not name the command of an image
	a.configure(c, fmt.Sprintf("attach: cri\ncri: {endpoint: \"unix://%s\", socket: %s, ociWrapper: {enabled: true, directory: %s}}\n", c.Socket(), a.proxy(), decisions)+fmt.Sprintf(hooksOn, dir))
	a.run()
	a.attached()
	c.Through(a.proxy())
	answers(t, c)
	playHooks(t, c, left)
}

// playHooks runs a pod that requests a hook and may, one that requests it and may not, and one without a
// request.
func playHooks(t *testing.T, c *real.Containerd, left string) {
	t.Helper()
	run := func(namespace, name, asks string) real.ContainerID {
		pod := c.RunPod(real.PodSpec{Namespace: namespace, Name: name, Annotations: map[string]string{"trace.example/on": asks}})
		return c.RunContainer(pod, real.ContainerSpec{Name: "main"})
	}
	run("other", "asks", "yes")
	run("default", "silent", "no")
	if sizeOf(left, "always") == 0 || sizeOf(left, "asked") != 0 {
		t.Errorf("of containers that may not ask or do not, the hooks left %d and %d bytes, want some and none", sizeOf(left, "always"), sizeOf(left, "asked"))
	}
	id := run("default", "asks", "yes")
	if sizeOf(left, "asked") == 0 {
		t.Error("the hook that a pod may ask for did not run")
	}
	if sizeOf(left, "ends") != 0 {
		t.Error("the hook of the stage poststop ran before the end")
	}
	c.StopContainer(id)
	c.RemoveContainer(id)
	if sizeOf(left, "ends") == 0 {
		t.Error("the hook of the stage poststop did not run")
	}
}

// sizeOf returns the size of a file that a hook wrote; 0 if there is none.
func sizeOf(dir, name string) int64 {
	info, err := os.Stat(filepath.Join(dir, name))
	if err != nil {
		return 0
	}
	return info.Size()
}
