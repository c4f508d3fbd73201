package nri

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
	nrinet "github.com/containerd/nri/pkg/net"

	"github.com/trimtab/trimtab/internal/conductor"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

const (
	exitGone  = 42 // the launched plugin ended because its runtime did
	exitOther = 43
)

// launchedPlugin is what this test binary does when a runtime starts it.
func launchedPlugin() int {
	var config string
	r := &recorder{answer: func(_ context.Context, ev lifecycle.Event) (conductor.Answer, error) {
		if ev.Kind != lifecycle.CreateContainer {
			return conductor.Answer{}, nil
		}
		return conductor.Answer{Values: []lifecycle.Value{{Field: lifecycle.Annotation, Key: "config", Text: config}}}, nil
	}}
	a := New(Options{Name: "unused", Index: "99", Handler: r, Log: discard(), OnConfigure: func(yaml string) error {
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

// TestLaunched: the runtime starts this very binary as a pre-installed plugin
// and hands it the drop-in configuration.
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

// launch starts this binary as a plugin on one end of a socket pair.
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

// TestLaunchedEndsWithItsRuntime: there is nobody to reconnect to.
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

// TestLaunchedWithBadConfiguration: the runtime is told, and the process ends.
func TestLaunchedWithBadConfiguration(t *testing.T) {
	cmd, w, _ := launch(t)
	if _, err := w.plugin.Configure(t.Context(), &api.ConfigureRequest{Config: "bad"}); err == nil {
		t.Error("bad configuration was taken")
	}
	if code := exitCode(t, cmd); code != exitGone {
		t.Errorf("exit code %d", code)
	}
}
