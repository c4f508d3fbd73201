package nri

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
	nrinet "github.com/containerd/nri/pkg/net"

	"github.com/trimtab/trimtab/internal/attach/connect"
	"github.com/trimtab/trimtab/internal/conductor"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/test/attachtest"
)

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

const (
	exitGone  = 42 // the launched plugin ended because its runtime ended
	exitOther = 43
)

// The files beside the plugin directory: the runtime's socket, and a file that keeps a launched plugin in
// standby while it exists.
const (
	socketSuffix = ".sock"
	takenSuffix  = ".taken"
)

// launchedPlugin is what this test binary does if a runtime starts it.
func launchedPlugin() int {
	var config string
	r := &recorder{answer: func(_ context.Context, ev lifecycle.Event) (conductor.Answer, error) {
		if ev.Kind != lifecycle.CreateContainer {
			return conductor.Answer{}, nil
		}
		return conductor.Answer{Values: []lifecycle.Value{{Field: lifecycle.Annotation, Key: "config", Text: config}}}, nil
	}}
	beside := filepath.Dir(os.Args[0])
	admit := func() error {
		if _, err := os.Stat(beside + takenSuffix); err == nil {
			return errors.New("another agent is there")
		}
		return nil
	}
	a := New(Options{Name: "unused", Index: "99", Socket: beside + socketSuffix, Admit: admit, Handler: r, Log: discard(), OnConfigure: func(yaml string) error {
		if yaml == "bad" {
			return errors.New("bad configuration")
		}
		config = yaml
		return nil
	}})
	if err := a.Run(context.Background()); !errors.Is(err, ErrRuntimeGone) {
		return exitOther
	}
	return exitGone
}

// TestLaunched: the runtime starts this binary as a pre-installed plugin and sends it the drop-in
// configuration.
func TestLaunched(t *testing.T) {
	plugins, conf := t.TempDir(), t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, filepath.Join(plugins, "10-trimtab")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(conf, "10-trimtab.conf"), []byte("kind: X\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	u := boot(t, socketPath(t), &upstream{}, adaptation.WithPluginPath(plugins), adaptation.WithPluginConfigPath(conf))
	rsp, err := u.CreateContainer(t.Context(), &api.CreateContainerRequest{Pod: aPod(), Container: aContainer()})
	if err != nil {
		t.Fatal(err)
	}
	if got := rsp.Adjust.Annotations["config"]; got != "kind: X\n" {
		t.Errorf("configuration arrived as %q", got)
	}
}

// TestLaunchedBesideAnother: while another agent works on the node, a plugin that the runtime started
// registers, so that the runtime continues, and changes nothing. When the other agent ends, it takes over.
func TestLaunchedBesideAnother(t *testing.T) {
	plugins, conf := filepath.Join(filepath.Dir(socketPath(t)), "p"), t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(
		os.Mkdir(plugins, 0o700), os.Symlink(self, filepath.Join(plugins, "10-trimtab")), os.WriteFile(plugins+takenSuffix, nil, 0o600),
		os.WriteFile(filepath.Join(conf, "10-trimtab.conf"), []byte("kind: X\n"), 0o600),
	); err != nil {
		t.Fatal(err)
	}
	u := boot(t, plugins+socketSuffix, &upstream{}, adaptation.WithPluginPath(plugins), adaptation.WithPluginConfigPath(conf))
	create := func() *api.ContainerAdjustment {
		t.Helper()
		rsp, err := u.CreateContainer(t.Context(), &api.CreateContainerRequest{Pod: aPod(), Container: aContainer()})
		if err != nil {
			t.Fatal(err)
		}
		return rsp.Adjust
	}
	if got := create().GetAnnotations()["config"]; got != "" {
		t.Errorf("beside another agent it answers %q", got)
	}
	if err := os.Remove(plugins + takenSuffix); err != nil {
		t.Fatal(err)
	}
	attachtest.Until(t, "the launched plugin takes over", func() bool { return create().GetAnnotations()["config"] == "kind: X\n" })
}

// TestEndsBetweenAnswers: an attachment that is ended while it answers an event first sends the answer. For
// the runtime a closed connection would mean that there is no answer.
func TestEndsBetweenAnswers(t *testing.T) {
	asked, answer := make(chan struct{}), make(chan struct{})
	r := &recorder{answer: func(_ context.Context, ev lifecycle.Event) (conductor.Answer, error) {
		if ev.Kind != lifecycle.CreateContainer {
			return conductor.Answer{}, nil
		}
		close(asked)
		<-answer
		return conductor.Answer{Values: []lifecycle.Value{{Field: lifecycle.Annotation, Key: "answered", Text: "yes"}}}, nil
	}}
	socket := socketPath(t)
	u := boot(t, socket, &upstream{})
	a := New(Options{Socket: socket, Handler: r, Log: discard()})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	attachtest.Until(t, "synchronised", inState(a, connect.StateSynchronised))
	attachtest.Until(t, "registered", u.registered)
	type made struct {
		rsp *api.CreateContainerResponse
		err error
	}
	got := make(chan made, 1)
	go func() {
		rsp, err := u.CreateContainer(t.Context(), &api.CreateContainerRequest{Pod: aPod(), Container: aContainer()})
		got <- made{rsp, err}
	}()
	<-asked
	cancel()
	select {
	case <-ended:
		t.Error("it ended with an event under way")
	case <-time.After(50 * time.Millisecond): // long enough to end, if the attachment did not wait
	}
	close(answer)
	if m := <-got; m.err != nil || m.rsp.Adjust.GetAnnotations()["answered"] != "yes" {
		t.Errorf("answered %v, %v", m.rsp, m.err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// launch starts this binary as a plugin with one end of a socket pair.
func launch(t *testing.T) (*exec.Cmd, *wire, *api.RegisterPluginRequest) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	pair, err := nrinet.NewSocketPair()
	if err != nil {
		t.Fatal(err)
	}
	conn, err := pair.LocalConn()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.ExtraFiles = []*os.File{pair.PeerFile()}
	cmd.Env = []string{api.PluginNameEnvVar + "=trimtab", api.PluginIdxEnvVar + "=10", api.PluginSocketEnvVar + "=3"}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pair.PeerClose()
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	w := newWire(t, conn)
	return cmd, w, w.request(t)
}

func exitCode(t *testing.T, cmd *exec.Cmd) int {
	t.Helper()
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) {
		t.Fatalf("ended with %v", err)
	}
	return exit.ExitCode()
}

// TestLaunchedEndsWithItsRuntime: a launched plugin cannot reconnect.
func TestLaunchedEndsWithItsRuntime(t *testing.T) {
	cmd, w, reg := launch(t)
	if reg.PluginName != "trimtab" || reg.PluginIdx != "10" {
		t.Errorf("registered as %v", reg)
	}
	configure(t, w, &api.ConfigureRequest{RuntimeName: "containerd", RuntimeVersion: "v2.4.2"})
	if _, err := w.plugin.Synchronize(t.Context(), &api.SynchronizeRequest{}); err != nil {
		t.Fatal(err)
	}
	w.close()
	if code := exitCode(t, cmd); code != exitGone {
		t.Errorf("exit code %d", code)
	}
}

// TestLaunchedWithBadConfiguration: the runtime gets the error, and the process ends.
func TestLaunchedWithBadConfiguration(t *testing.T) {
	cmd, w, _ := launch(t)
	if _, err := w.plugin.Configure(t.Context(), &api.ConfigureRequest{Config: "bad"}); err == nil {
		t.Error("bad configuration was taken")
	}
	if code := exitCode(t, cmd); code != exitGone {
		t.Errorf("exit code %d", code)
	}
}
