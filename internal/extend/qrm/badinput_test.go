package qrm_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	registry "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	api "github.com/trimtab/trimtab/api/resourceplugin/v1alpha1"
	"github.com/trimtab/trimtab/internal/extend/qrm"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// refusedWith waits for a refused registration with a text.
func (r *rig) refusedWith(text string) {
	r.t.Helper()
	until(r.t, "a registration is refused: "+text, func() bool {
		_, refused, _ := r.States()
		for _, one := range refused {
			if strings.Contains(one.Text, text) {
				return true
			}
		}
		return false
	})
}

// TestForeignSocket: a socket of another user is not called, however its plugin registers.
func TestForeignSocket(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a socket away")
	}
	const nobody = 65534
	watched := t.TempDir()
	r := start(t, t.TempDir(), func(o *qrm.Options) { o.WatchDirectories, o.Timeout = []string{watched}, time.Second })
	called := false
	f := &fake{options: &api.ResourcePluginOptions{}, allocate: func(context.Context, *api.ResourceRequest) (*api.ResourceAllocation, error) {
		called = true
		return nil, nil
	}}
	path := filepath.Join(r.dir, "nic.sock")
	f.serve(t, path)
	if err := os.Chown(path, nobody, -1); err != nil {
		t.Fatal(err)
	}
	if err := r.register(&api.RegisterRequest{Version: "v1alpha1", Endpoint: "nic.sock", ResourceName: "nic"}); err == nil || !strings.Contains(err.Error(), "65534") {
		t.Errorf("registered: %v", err)
	}
	r.refusedWith("65534")
	// A plugin that was trusted, whose socket another user owns now.
	if err := os.Chown(path, 0, -1); err != nil {
		t.Fatal(err)
	}
	r.mustRegister("nic", "nic.sock")
	second := filepath.Join(r.dir, "other.sock")
	(&fake{options: &api.ResourcePluginOptions{}, allocate: f.allocate}).serve(t, second)
	if err := errorOf(os.Chown(second, nobody, -1), os.Rename(second, path)); err != nil {
		t.Fatal(err)
	}
	r.stop() // connections end with the manager
	r = start(t, r.dir, func(o *qrm.Options) {
		o.Timeout, o.SavedState = time.Second, []byte(`{"version":1,"plugins":[{"resource":"nic","socket":"`+path+`"}]}`)
	})
	a, err := r.Question(pod, app("app"), spec(lifecycle.Amounts{"nic": 1})).Allocate(t.Context(), nil)
	if err != nil || len(a.Values) > 0 || len(a.Problems) != 1 || called {
		t.Errorf("%+v, %v, called %v", a, err, called)
	}
}

// found is a plugin in a watched directory.
type found struct {
	registry.UnimplementedRegistrationServer

	info *registry.PluginInfo

	mu     sync.Mutex
	status []string
}

func (f *found) GetInfo(context.Context, *registry.InfoRequest) (*registry.PluginInfo, error) {
	return f.info, nil
}

func (f *found) NotifyRegistrationStatus(_ context.Context, s *registry.RegistrationStatus) (*registry.RegistrationStatusResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.status = append(f.status, s.GetError())
	return &registry.RegistrationStatusResponse{}, nil
}

// TestBadSockets: what a socket of a watched directory says wrongly is refused, and the plugin is notified why.
func TestBadSockets(t *testing.T) {
	watched, outside := t.TempDir(), t.TempDir()
	r := start(t, t.TempDir(), func(o *qrm.Options) { o.WatchDirectories = []string{watched} })
	for name, c := range map[string]struct {
		info *registry.PluginInfo
		want string
	}{
		"outside": {&registry.PluginInfo{Type: "ResourcePlugin", Name: "a", Endpoint: outside + "/a.sock", SupportedVersions: []string{"v1alpha1"}}, "outside of the watched directory"},
		"upwards": {&registry.PluginInfo{Type: "ResourcePlugin", Name: "b", Endpoint: watched + "/../b.sock", SupportedVersions: []string{"v1alpha1"}}, "outside of the watched directory"},
		"version": {&registry.PluginInfo{Type: "ResourcePlugin", Name: "c", SupportedVersions: []string{"v9"}}, "the plugin supports the protocol versions v9"},
		"name":    {&registry.PluginInfo{Type: "ResourcePlugin", Name: "d e", SupportedVersions: []string{"v1alpha1"}}, "is not the name of a resource"},
	} {
		t.Run(name, func(t *testing.T) {
			f := &found{info: c.info}
			l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", filepath.Join(watched, name+".sock"))
			if err != nil {
				t.Fatal(err)
			}
			s := grpc.NewServer()
			registry.RegisterRegistrationServer(s, f)
			done := make(chan error, 1)
			go func() { done <- s.Serve(l) }()
			defer func() { s.Stop(); <-done }()
			r.refusedWith(c.want)
			until(t, "the plugin is notified", func() bool {
				f.mu.Lock()
				defer f.mu.Unlock()
				return len(f.status) > 0 && strings.Contains(f.status[0], c.want)
			})
		})
	}
	if plugins, _, _ := r.States(); len(plugins) > 0 {
		t.Errorf("registered: %+v", plugins)
	}
}

// TestAnothersName: a plugin under the name of another takes its place, which is counted; what the first allocated
// stays with its containers, and the second is asked to allocate it.
func TestAnothersName(t *testing.T) {
	r := start(t, t.TempDir(), func(o *qrm.Options) { o.ReconcileInterval = 5 * time.Millisecond })
	first := &fake{options: &api.ResourcePluginOptions{NeedReconcile: true}, allocate: gives("nic", "first"), have: map[string]*api.ContainerResources{}}
	first.serve(t, filepath.Join(r.dir, "first.sock"))
	r.mustRegister("nic", "first.sock")
	if _, err := r.Question(pod, app("app"), spec(lifecycle.Amounts{"nic": 1})).Allocate(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	second := &fake{options: &api.ResourcePluginOptions{NeedReconcile: true}, allocate: gives("nic", "second"), have: map[string]*api.ContainerResources{}}
	second.serve(t, filepath.Join(r.dir, "second.sock"))
	r.mustRegister("nic", "second.sock")
	until(t, "the second allocates it", func() bool {
		v := r.Values("u1")["app"]
		return len(v) == 1 && v[0].Text == "second"
	})
	if s := r.state("nic"); s.Replaced != 1 || s.Pods != 1 || !strings.HasSuffix(s.Socket, "second.sock") {
		t.Errorf("state %+v", s)
	}
}
