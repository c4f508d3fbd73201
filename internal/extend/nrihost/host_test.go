package nrihost

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestAdjustFirst: if the host cannot change the runtime's specs, plugins change the request, as far as the
// CRI can express it.
func TestAdjustFirst(t *testing.T) {
	g := newRig(t, nil)
	p := &plugin{create: func(c *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
		a := &api.ContainerAdjustment{}
		if c.GetName() == "hooked" {
			a.AddHooks(&api.Hooks{Prestart: []*api.Hook{{Path: "/bin/true"}}})
			return a, nil, nil
		}
		a.AddEnv("PLUGIN", "1")
		a.SetLinuxCPUShares(77)
		return a, nil, nil
	}}
	if err := g.plug(p, "a"); err != nil {
		t.Fatal(err)
	}
	pod, err := g.runPod("p")
	if err != nil {
		t.Fatal(err)
	}
	id, err := g.create(pod, "c")
	if err != nil {
		t.Fatal(err)
	}
	c, _ := g.host.objects.container(id)
	if !slices.Contains(c.GetEnv(), "PLUGIN=1") || c.GetLinux().GetResources().GetCpu().GetShares().GetValue() != 77 {
		t.Errorf("plugins know %v", c)
	}
	s, err := g.direct.ContainerStatus(t.Context(), &cri.ContainerStatusRequest{ContainerId: id, Verbose: true})
	if err != nil || !strings.Contains(s.GetInfo()["info"], "PLUGIN=1") {
		t.Errorf("the runtime has %v, %v", s, err)
	}
	if _, err := g.create(pod, "hooked"); err == nil || !strings.Contains(err.Error(), "hooks") {
		t.Errorf("an OCI hook, which the CRI cannot say: %v", err)
	}
	if sets := g.host.State().Plugins[0].FieldsSet; !slices.Equal(sets, []string{"env", "hooks.prestart", "linux.resources.cpu.shares"}) {
		t.Errorf("the plugin sets %q", sets)
	}
	if _, err := g.calls.StopPodSandbox(t.Context(), &cri.StopPodSandboxRequest{PodSandboxId: pod}); err != nil {
		t.Error(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if want := []string{"run", "create", "create", "stop container", "stop"}; !slices.Equal(p.events, want) {
		t.Errorf("events %v, want %v", p.events, want)
	}
}

// TestRefusal: the error names the plugin.
func TestRefusal(t *testing.T) {
	g := newRig(t, nil)
	err := g.plug(&plugin{create: func(*api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
		return nil, nil, errors.New("I will not")
	}}, "no")
	if err != nil {
		t.Fatal(err)
	}
	pod, err := g.runPod("p")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.create(pod, "c"); err == nil || !strings.Contains(err.Error(), "NRI plugin 10-no failed at CreateContainer") || !strings.Contains(err.Error(), "I will not") {
		t.Errorf("error %v", err)
	}
	s := g.host.State()
	if len(s.Plugins) != 1 || s.Plugins[0].Failed != 1 || !s.Plugins[0].Connected || s.CreationOrder == "" {
		t.Errorf("state %+v", s)
	}
}

// TestSecondOfAName: the second plugin with a name is rejected, and accepted after the first one has
// disconnected.
func TestSecondOfAName(t *testing.T) {
	g := newRig(t, nil)
	first := &plugin{}
	if err := g.plug(first, "same"); err != nil {
		t.Fatal(err)
	}
	if err := g.plug(&plugin{}, "same"); err == nil {
		t.Error("a second plugin of the name registered")
	}
	if s := g.host.State(); s.Rejected != 1 {
		t.Errorf("state %+v", s)
	}
	first.stub.Stop()
	eventually(t, func() error {
		if g.host.State().Plugins[0].Connected {
			return errors.New("still connected")
		}
		return nil
	})
	if err := g.plug(&plugin{}, "same"); err != nil {
		t.Error(err)
	}
}

// TestStrangers: clients that send nothing, or garbage, do not block plugins.
func TestStrangers(t *testing.T) {
	g := newRig(t, nil)
	eventually(t, func() error {
		if !g.host.serving.Load() {
			return errors.New("the host does not run")
		}
		return nil
	})
	for _, text := range []string{"", "GET / HTTP/1.1\r\n\r\n", "\x00\x00\x00\x02\xff\xff\xff\xff", strings.Repeat("\x00\x00\x00\x02\x00\x00\x00\x01a", 1000)} {
		c, err := net.Dial("unix", g.host.opts.Socket)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	begun := time.Now()
	if err := g.plug(&plugin{}, "after"); err != nil {
		t.Error(err)
	}
	if took := time.Since(begun); took > firstMessageTimeout/2 {
		t.Errorf("a plugin waited %v behind a silent client", took)
	}
}

// TestServedSocket: a socket that a process serves is an error, and one that no process serves is replaced.
func TestServedSocket(t *testing.T) {
	var served net.Listener
	g := newRig(t, func(o *Options) {
		var err error
		if served, err = net.Listen("unix", o.Socket); err != nil {
			t.Fatal(err)
		}
	})
	eventually(t, func() error {
		if s := g.host.State(); !strings.Contains(s.Err, "is served by another process") {
			return errors.New("state " + s.Err)
		}
		return nil
	})
	if _, err := g.runPod("passes"); err != nil {
		t.Errorf("a pod while no plugins are served: %v", err)
	}
	served.Close()
	if err := g.plug(&plugin{}, "a"); err != nil {
		t.Error(err)
	}
	if fi, err := os.Stat(g.host.opts.Socket); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("socket %v, %v", fi, err)
	}
	if other, err := newPluginListener(g.host.opts, newPlugins(noRecorder{})); err == nil {
		other.close()
		t.Error("two hosts have one socket")
	}
}

// TestHang: a plugin that does not answer is skipped after its timeout, and the calls that waited for it
// continue.
func TestHang(t *testing.T) {
	g := newRig(t, func(o *Options) { o.RequestTimeout = 300 * time.Millisecond })
	hang := make(chan struct{})
	defer close(hang)
	err := g.plug(&plugin{create: func(*api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
		<-hang
		return nil, nil, nil
	}}, "hangs")
	if err != nil {
		t.Fatal(err)
	}
	pod, err := g.runPod("p")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		id, err := g.create(pod, "c"+time.Now().Format("150405.000000"))
		if err != nil || id == "" {
			t.Errorf("creation: %v", err)
		}
	}
	if s := g.host.State(); s.Plugins[0].Failed != 1 || s.Plugins[0].Calls < 2 {
		t.Errorf("state %+v", s)
	}
}

// TestFails: with the failure policy fail, nothing is created while plugins are not served.
func TestFails(t *testing.T) {
	g := newRig(t, func(o *Options) {
		o.FailClosed = true
		o.Socket = filepath.Join(filepath.Dir(o.Socket), "is", "a", "file")
		if err := os.MkdirAll(filepath.Dir(o.Socket), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(o.Socket, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	})
	if _, err := g.runPod("p"); err == nil || !strings.Contains(err.Error(), "failurePolicy.agent") {
		t.Errorf("error %v", err)
	}
}

// TestPreInstalled: the host starts the plugins in its directory with their configuration. External plugins
// can be disabled.
func TestPreInstalled(t *testing.T) {
	g := newRig(t, func(o *Options) {
		o.DisableConnections = true
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		for path, do := range map[string]func(at string) error{
			filepath.Join(o.PluginPath, "05-launched"):         func(at string) error { return os.Symlink(self, at) },
			filepath.Join(o.PluginConfigPath, "launched.conf"): func(at string) error { return os.WriteFile(at, []byte("by its file"), 0o600) },
		} {
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), do(path)); err != nil {
				t.Fatal(err)
			}
		}
	})
	eventually(t, func() error {
		if !g.host.serving.Load() {
			return errors.New(g.host.State().Err)
		}
		return nil
	})
	if _, err := os.Stat(g.host.opts.Socket); err == nil {
		t.Error("external plugins can connect")
	}
	pod, err := g.runPod("p")
	if err != nil {
		t.Fatal(err)
	}
	id, err := g.create(pod, "c")
	if err != nil {
		t.Fatal(err)
	}
	if c, _ := g.host.objects.container(id); !slices.Contains(c.GetEnv(), "CONFIGURED=by its file") {
		t.Errorf("environment %v", c.GetEnv())
	}
}

// TestRequired: the default validator refuses a container without a plugin that it needs.
func TestRequired(t *testing.T) {
	g := newRig(t, func(o *Options) { o.Validator = &Validator{Enable: true, RequiredPlugins: []string{"needed"}} })
	if err := g.plug(&plugin{}, "other"); err != nil {
		t.Fatal(err)
	}
	pod, err := g.runPod("p")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.create(pod, "c"); err == nil || !strings.Contains(err.Error(), "needed") {
		t.Errorf("a container without a required plugin: %v", err)
	}
	if err := g.plug(&plugin{}, "needed"); err != nil {
		t.Fatal(err)
	}
	if _, err := g.create(pod, "c"); err != nil {
		t.Error(err)
	}
}
