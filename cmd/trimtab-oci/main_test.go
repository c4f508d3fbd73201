package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trimtab/trimtab/internal/ociedit"
)

const bundleConfig = `{"ociVersion":"1.2.0","process":{"args":["sleep"],"rlimits":[{"type":"RLIMIT_NOFILE","hard":10,"soft":10}]}}`

// place has the paths of a bundle, a directory of decisions and a settings file.
type place struct {
	t                           *testing.T
	bundle, decisions, settings string
	runtime                     string
}

func newPlace(t *testing.T, onError string) *place {
	t.Helper()
	dir := t.TempDir()
	p := &place{t: t, bundle: filepath.Join(dir, "bundle"), decisions: filepath.Join(dir, "decisions"), settings: filepath.Join(dir, "oci.json"), runtime: filepath.Join(dir, "runtime")}
	text, err := json.Marshal(settings{Runtime: p.runtime, Decisions: p.decisions, OnError: onError})
	err = errors.Join(err, os.Mkdir(p.bundle, 0o700), os.WriteFile(p.settings, text, 0o600),
		os.WriteFile(p.runtime, []byte("#!/bin/sh\nprintf '%s\\n' \"$@\"\nexit 7\n"), 0o700),
		os.WriteFile(filepath.Join(p.bundle, "config.json"), []byte(bundleConfig), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *place) decide() {
	p.t.Helper()
	d := ociedit.Decision{ID: "c1", Rlimits: []ociedit.Rlimit{{Type: "RLIMIT_NOFILE", Hard: 20, Soft: 15}}, IOPriority: &ociedit.IOPriority{Class: "IOPRIO_CLASS_IDLE"}}
	if err := ociedit.WriteDecision(p.decisions, d); err != nil {
		p.t.Fatal(err)
	}
}

func (p *place) config() string {
	p.t.Helper()
	text, err := os.ReadFile(filepath.Join(p.bundle, "config.json"))
	if err != nil {
		p.t.Fatal(err)
	}
	return string(text)
}

func (p *place) log() string { return filepath.Join(p.bundle, "log.json") }

func (p *place) create() []string {
	return []string{"--log", p.log(), "--log-format", "json", "create", "--bundle", p.bundle, "c1"}
}

// run runs the wrapper until it would execute the real runtime, and returns that runtime's arguments.
func (p *place) run(args ...string) (passed []string, said string, err error) {
	var out bytes.Buffer
	w := wrapper{args: args, err: &out, exec: func(path string, args, _ []string) error {
		if path != p.runtime {
			p.t.Errorf("%s was started, want %s", path, p.runtime)
		}
		passed = args[1:]
		return nil
	}}
	if err = w.run(p.settings); err != nil {
		w.report("error", err)
	}
	return passed, out.String(), err
}

// TestCreate: the wrapper applies a decision to the bundle before the real runtime reads it, and stores the
// result.
func TestCreate(t *testing.T) {
	p := newPlace(t, "")
	p.decide()
	passed, said, err := p.run(p.create()...)
	if err != nil || said != "" || !slices.Equal(passed, p.create()) {
		t.Fatalf("passed %q, said %q, %v", passed, said, err)
	}
	const want = `{"ociVersion":"1.2.0","process":{"args":["sleep"],"ioPriority":{"class":"IOPRIO_CLASS_IDLE","priority":0},"rlimits":[{"hard":20,"soft":15,"type":"RLIMIT_NOFILE"}]}}`
	if got := p.config(); got != want {
		t.Errorf("config.json is %s", got)
	}
	if err := ociedit.ReadResult(p.decisions, "c1"); err != nil {
		t.Error(err)
	}
}

// TestUntouched: the wrapper passes other commands, and containers without a decision, unchanged.
func TestUntouched(t *testing.T) {
	for _, args := range [][]string{{"create", "--bundle", "BUNDLE", "c2"}, {"start", "c1"}, {"state", "c1"}, {"--version"}, nil} {
		p := newPlace(t, onErrorFail)
		p.decide()
		for i, a := range args {
			args[i] = strings.Replace(a, "BUNDLE", p.bundle, 1)
		}
		passed, said, err := p.run(args...)
		if err != nil || said != "" || !slices.Equal(passed, args) || p.config() != bundleConfig {
			t.Errorf("%q: passed %q, said %q, %v; config.json %s", args, passed, said, err, p.config())
		}
	}
}

// TestOnError: the wrapper reports a decision that it cannot apply, and fails the container only if the
// settings say so.
func TestOnError(t *testing.T) {
	for onError, stops := range map[string]bool{"": false, onErrorIgnore: false, onErrorFail: true} {
		p := newPlace(t, onError)
		p.decide()
		if err := os.WriteFile(filepath.Join(p.bundle, "config.json"), []byte("[]"), 0o600); err != nil {
			t.Fatal(err)
		}
		passed, said, err := p.run(p.create()...)
		if stopped := passed == nil; stopped != stops || (err != nil) != stops {
			t.Errorf("%q: passed %q, %v", onError, passed, err)
		}
		if !strings.Contains(said, "edit config.json") {
			t.Errorf("%q: said %q", onError, said)
		}
		var line struct{ Level, Msg string }
		text, err := os.ReadFile(p.log())
		if err = errors.Join(err, json.Unmarshal(text, &line)); err != nil || !strings.Contains(line.Msg, "edit config.json") || (line.Level == "error") != stops {
			t.Errorf("%q: log %s, %v", onError, text, err)
		}
		if err := ociedit.ReadResult(p.decisions, "c1"); err == nil || !strings.Contains(err.Error(), "edit config.json") {
			t.Errorf("%q: the result is %v", onError, err)
		}
	}
}

// TestSettings: invalid settings fail commands that create a container, and no other commands.
func TestSettings(t *testing.T) {
	for _, text := range []string{"{", `{"onError":"never"}`, `{"runtimes":"x"}`} {
		p := newPlace(t, "")
		if err := os.WriteFile(p.settings, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, err := p.run(p.create()...); err == nil || !strings.Contains(err.Error(), p.settings) {
			t.Errorf("%s: %v", text, err)
		}
	}
	if s, err := readSettings(filepath.Join(t.TempDir(), "none")); err == nil || s.Runtime != "runc" || s.Decisions != ociedit.DefaultDirectory || s.OnError != onErrorIgnore {
		t.Errorf("a named file that is missing: %+v, %v", s, err)
	}
	if _, err := parseSettings(filepath.Join(t.TempDir(), "none"), false); err != nil {
		t.Error(err)
	}
	if _, err := findRuntime("/proc/self/exe"); err == nil || !strings.Contains(err.Error(), "trimtab-oci itself") {
		t.Errorf("the wrapper may start itself: %v", err)
	}
	if _, err := findRuntime(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a runtime that is missing was found")
	}
}

// built is the program as it is installed.
func built(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "trimtab-oci")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", path, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}

// TestProgram: the program is small, needs no files of the system, and returns the exit code of the real
// runtime.
func TestProgram(t *testing.T) {
	path := built(t)
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if most := int64(3 << 20); info.Size() >= most {
		t.Errorf("the program has %d bytes, want less than %d", info.Size(), most)
	}
	p := newPlace(t, "")
	p.decide()
	cmd := exec.CommandContext(t.Context(), path, p.create()...)
	cmd.Env = []string{settingsVariable + "=" + p.settings}
	out, err := cmd.Output()
	var ended *exec.ExitError
	if !errors.As(err, &ended) || ended.ExitCode() != 7 || string(out) != strings.Join(p.create(), "\n")+"\n" {
		t.Errorf("%q, %v", out, err)
	}
	if !strings.Contains(p.config(), `"soft":15`) {
		t.Errorf("config.json is %s", p.config())
	}
}

// BenchmarkCreate compares a runtime that does nothing with the same runtime behind the wrapper, which
// edits the bundle each time. The two alternate, so that both run under the same load. Bundles and
// decisions are below /run, a tmpfs.
func BenchmarkCreate(b *testing.B) {
	path := built(b)
	dir, err := os.MkdirTemp("/dev/shm", "trimtab-oci")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = os.RemoveAll(dir) })
	bundle, decisions, settingsFile := filepath.Join(dir, "bundle"), filepath.Join(dir, "decisions"), filepath.Join(dir, "oci.json")
	stub, err := exec.LookPath("true")
	text, wrong := json.Marshal(settings{Runtime: stub, Decisions: decisions})
	d := ociedit.Decision{ID: "c1", Rlimits: []ociedit.Rlimit{{Type: "RLIMIT_NOFILE", Hard: 20, Soft: 15}}}
	if err := errors.Join(err, wrong, os.Mkdir(bundle, 0o700), os.WriteFile(settingsFile, text, 0o600), ociedit.WriteDecision(decisions, d),
		os.WriteFile(filepath.Join(bundle, "config.json"), []byte(bundleConfig), 0o600)); err != nil {
		b.Fatal(err)
	}
	args := []string{"create", "--bundle", bundle, "c1"}
	run := func(program string) {
		cmd := exec.CommandContext(b.Context(), program, args...)
		cmd.Env = []string{settingsVariable + "=" + settingsFile}
		if err := cmd.Run(); err != nil {
			b.Fatal(err)
		}
	}
	var direct, wrapped time.Duration
	for b.Loop() {
		start := time.Now()
		run(stub)
		middle := time.Now()
		run(path)
		direct, wrapped = direct+middle.Sub(start), wrapped+time.Since(middle)
	}
	b.ReportMetric(float64(direct.Microseconds())/float64(b.N), "µs/direct")
	b.ReportMetric(float64(wrapped.Microseconds())/float64(b.N), "µs/wrapped")
	b.ReportMetric(float64((wrapped-direct).Microseconds())/float64(b.N), "µs/added")
}
