package qrm_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	api "github.com/trimtab/trimtab/api/resourceplugin/v1alpha1"
	"github.com/trimtab/trimtab/internal/extend/qrm"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// checkpointEntry is one entry of Katalyst's checkpoint.
func checkpointEntry(uid, ctr, resource, info string) map[string]string {
	return map[string]string{"PodUID": uid, "ContainerName": ctr, "ResourceName": resource, "AllocationInfo": info}
}

func checkpointText(t *testing.T, entries ...map[string]string) []byte {
	t.Helper()
	data, err := json.Marshal(map[string]any{"Data": map[string]any{"PodResourceEntries": entries}, "Checksum": 12345})
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// cpuInfo is an allocation as Katalyst's kubelet writes it.
const cpuInfo = `{"oci_property_name":"CpusetCpus","is_scalar_resource":true,"allocated_quantity":2,"allocation_result":"1-2",` +
	`"envs":{"A":"b"},"resource_hints":{"hints":[{"nodes":[0],"preferred":true}]},"topology_assignments":{"0":2},"later":1}`

// TestMigration: what an earlier manager's checkpoint has is known before any plugin registers, is not moved, and is
// released with its pod; the plugin's own answer takes its place.
func TestMigration(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "kubelet_qrm_checkpoint"), checkpointText(t,
		checkpointEntry("u1", "app", "cpu", cpuInfo), checkpointEntry("u1", "app", "beside", `{"annotations":{"k":"old"}}`),
		checkpointEntry("u2", "app", "cpu", cpuInfo), checkpointEntry("", "app", "cpu", cpuInfo), checkpointEntry("u1", "app", "cpu!", cpuInfo), checkpointEntry("u1", "log", "cpu", "{"),
	), 0o600); err != nil {
		t.Fatal(err)
	}
	var state []byte
	live := map[string]bool{"u1": true}
	with := func(o *qrm.Options) {
		o.ReconcileInterval, o.SavedState, o.LivePods = 5*time.Millisecond, state, func() map[string]bool { return live }
		o.SaveState = func(b []byte) error { state = b; return nil }
	}
	r := start(t, dir, with)
	values := func() string {
		var out []string
		for _, v := range r.Values("u1")["app"] {
			out = append(out, v.Setting()+" "+v.String())
		}
		return strings.Join(out, ", ")
	}
	if got := values(); got != "annotation k old, cpuset.cpus 1-2, env A b" {
		t.Errorf("taken over %q", got)
	}
	r.ReleaseEnded(live)
	f := &fake{options: &api.ResourcePluginOptions{WithTopologyAlignment: true, NeedReconcile: true}, allocate: gives("cpu", "x"), forgets: true}
	f.have = map[string]*api.ContainerResources{"u1": {ContainerResources: map[string]*api.ResourceAllocation{"app": {ResourceAllocation: map[string]*api.ResourceAllocationInfo{
		"cpu": {OciPropertyName: "CpusetCpus", AllocationResult: "3-4", AllocatedQuantity: 2}, "beside": {Annotations: map[string]string{"k": "new"}},
	}}}}}
	f.serve(t, filepath.Join(dir, "cpu.sock"))
	if err := r.register(&api.RegisterRequest{Version: "v1alpha1", Endpoint: "cpu.sock", ResourceName: "cpu", Options: f.options}); err != nil {
		t.Fatal(err)
	}
	until(t, "the plugin's own answer counts", func() bool { return values() == "annotation k new, cpuset.cpus 3-4" })
	r.stop()
	r = start(t, dir, with)
	if got := values(); got != "annotation k new, cpuset.cpus 3-4" {
		t.Errorf("after a restart %q: the checkpoint is read once", got)
	}
	r.Remove("u1")
	until(t, "the pod is released", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return strings.Contains(fmt.Sprint(f.removed), "u1") && f.have["u1"] == nil
	})
}

// TestBadCheckpoint: a checkpoint that cannot be read is named in the log, and changes nothing.
func TestBadCheckpoint(t *testing.T) {
	good := checkpointText(t, checkpointEntry("u1", "app", "cpu", cpuInfo))
	for name, c := range map[string]struct {
		make func(path string) error
		want string
	}{
		"torn":    {func(p string) error { return os.WriteFile(p, good[:len(good)/2], 0o600) }, "unexpected end"},
		"no JSON": {func(p string) error { return os.WriteFile(p, []byte("\x00\xff"), 0o600) }, "invalid character"},
		"list":    {func(p string) error { return os.WriteFile(p, []byte(`{"Data":[]}`), 0o600) }, "array"},
		"entries": {func(p string) error {
			return os.WriteFile(p, checkpointText(t, checkpointEntry("u", "c", "cpu", "[]")), 0o600)
		}, "none of the 1 entries"},
		"writable": {func(p string) error { return errorOf(os.WriteFile(p, good, 0o600), os.Chmod(p, 0o666)) }, "lets other users write"},
		"a link":   {func(p string) error { return errorOf(os.WriteFile(p+".0", good, 0o600), os.Symlink(p+".0", p)) }, "symbolic links"},
		"a folder": {func(p string) error { return os.Mkdir(p, 0o700) }, "not a regular file"},
		"huge":     {func(p string) error { return errorOf(os.WriteFile(p, good, 0o600), os.Truncate(p, 40<<20)) }, "more than"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "kubelet_qrm_checkpoint")
			if err := c.make(path); err != nil {
				t.Fatal(err)
			}
			var log bytes.Buffer
			m := qrm.New(qrm.Options{Directory: dir, Log: slog.New(slog.NewTextHandler(&log, nil))})
			if v := m.Values("u1"); len(v) > 0 {
				t.Errorf("values %v", v)
			}
			if text := log.String(); !strings.Contains(text, c.want) || !strings.Contains(text, path) {
				t.Errorf("%q does not say %q", text, c.want)
			}
			if q := m.Question(pod, app("app"), spec(lifecycle.Amounts{"cpu": 1})); q != nil {
				t.Error("there is a plugin")
			}
		})
	}
}

func errorOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
