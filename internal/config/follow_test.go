package config

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// heard is one call of the functions of a watched file.
type heard struct {
	applied *Config
	report  error
}

type followed struct {
	t     *testing.T
	dir   string
	file  string
	calls chan heard
	fail  chan error // the result of the next apply
}

func startFollowing(t *testing.T, file string, inForce *Config) *followed {
	t.Helper()
	f := &followed{t: t, dir: filepath.Dir(file), file: file, calls: make(chan heard, 16), fail: make(chan error, 1)}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- Follower{
			File: file, InForce: inForce, Parse: Parse,
			Apply: func(c Config) error {
				f.calls <- heard{applied: &c}
				select {
				case err := <-f.fail:
					return err
				default:
					return nil
				}
			},
			Report: func(err error) { f.calls <- heard{report: err} },
		}.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("following ended with %v", err)
		}
		for len(f.calls) > 0 {
			t.Errorf("unexpected %+v", <-f.calls)
		}
	})
	return f
}

func (f *followed) next() heard {
	f.t.Helper()
	select {
	case h := <-f.calls:
		return h
	case <-time.After(time.Minute):
		f.t.Fatal("heard nothing")
		return heard{}
	}
}

// applies waits for a configuration with the given log level.
func (f *followed) applies(level string) {
	f.t.Helper()
	if h := f.next(); h.applied == nil || h.applied.Log.Level != level {
		f.t.Fatalf("heard %+v, want level %s applied", h, level)
	}
}

func (f *followed) reports(parts ...string) {
	f.t.Helper()
	h := f.next()
	if h.applied != nil || h.report == nil {
		f.t.Fatalf("heard %+v, want a report", h)
	}
	for _, p := range parts {
		if !strings.Contains(h.report.Error(), p) {
			f.t.Errorf("report %q lacks %q", h.report, p)
		}
	}
}

func (f *followed) recovers() {
	f.t.Helper()
	if h := f.next(); h.applied != nil || h.report != nil {
		f.t.Fatalf("heard %+v, want a report of nil", h)
	}
}

func level(l string) string { return header + "log:\n  level: " + l + "\n" }

// write writes a text into a file. No reader finds the file empty: a new file is renamed to its name, and an old one is
// overwritten with the text and blank lines, before it gets its length.
func write(t *testing.T, file, text string) {
	t.Helper()
	old, err := os.ReadFile(file)
	if err != nil {
		check(t, os.WriteFile(file+".written", []byte(text), 0o600))
		check(t, os.Rename(file+".written", file))
		return
	}
	to, err := os.OpenFile(file, os.O_WRONLY, 0)
	check(t, err)
	_, err = to.WriteString(text + strings.Repeat("\n", max(0, len(old)-len(text))))
	check(t, errors.Join(err, to.Truncate(int64(len(text))), to.Close()))
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestFollowReplacedFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	write(t, file, level("info"))
	f := startFollowing(t, file, nil)
	f.applies("info")

	write(t, file, level("debug")) // the file is changed in place
	f.applies("debug")

	write(t, file+".new", level("warn")) // a new file is renamed over it
	check(t, os.Rename(file+".new", file))
	f.applies("warn")

	check(t, os.Remove(file))
	f.reports("no such file", "stays")
	write(t, file, level("warn")) // the old content again: nothing to apply
	f.recovers()
	write(t, file, "# now with a comment\n"+level("warn")) // other text with the same meaning
	write(t, file, level("error"))
	f.applies("error")
}

func TestFollowConfigMap(t *testing.T) {
	dir := t.TempDir()
	publish := func(version, text string) {
		real := filepath.Join(dir, version)
		check(t, os.Mkdir(real, 0o755))
		write(t, filepath.Join(real, "config.yaml"), text)
		check(t, os.Symlink(version, filepath.Join(dir, "..data_tmp")))
		check(t, os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
	}
	publish("..1", level("info"))
	file := filepath.Join(dir, "config.yaml")
	check(t, os.Symlink("..data/config.yaml", file))
	inForce, err := Load(file)
	check(t, err)

	f := startFollowing(t, file, &inForce) // so there is nothing to apply yet
	publish("..2", level("debug"))
	f.applies("debug")
	check(t, os.RemoveAll(filepath.Join(dir, "..1"))) // the kubelet removes the old directory
	publish("..3", level("warn"))
	f.applies("warn")
}

func TestFollowLinkToElsewhere(t *testing.T) {
	real := filepath.Join(t.TempDir(), "real.yaml")
	link := filepath.Join(t.TempDir(), "config.yaml")
	write(t, real, level("info"))
	check(t, os.Symlink(real, link))
	f := startFollowing(t, link, nil)
	f.applies("info")
	write(t, real, level("debug"))
	f.applies("debug")
}

func TestFollowKeepsWhatIsInForce(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	write(t, file, level("info"))
	f := startFollowing(t, file, nil)
	f.applies("info")

	write(t, file, header+"lok:\n  level: debug\nstrict: 1\n")
	f.reports("config.yaml:3: lok: unknown key", "config.yaml:5: strict: want true or false", "stays")
	write(t, file, level("info"))
	f.recovers()

	f.fail <- errors.New("no")
	write(t, file, level("debug"))
	f.applies("debug")
	f.reports("apply", "no")
	write(t, file, level("info")) // the configuration is still in force
	f.recovers()
	write(t, file, level("debug")) // the refused configuration is tried again
	f.applies("debug")
}

func TestFollowMissingDirectory(t *testing.T) {
	f := startFollowing(t, filepath.Join(t.TempDir(), "away", "config.yaml"), nil)
	f.reports("no such file")
}

func TestFollowHalfWrittenFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	write(t, file, level("info"))
	f := startFollowing(t, file, nil)
	f.applies("info")
	// Each step but the last may be valid or not, and none of them must be applied.
	out, err := os.Create(file)
	check(t, err)
	for _, part := range []string{header, "log:\n", "  level: de", "bug\n"} {
		_, err := out.WriteString(part)
		check(t, err)
	}
	check(t, out.Close())
	f.applies("debug")
}

func TestFollowWithOverride(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	write(t, file, level("info"))
	inForce := Default()
	inForce.Log.Format = "json"
	applied := make(chan Config, 4)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- Follower{
			File: file, InForce: &inForce, Parse: Parse,
			Override: func(c *Config) { c.Log.Format = "json" },
			Apply:    func(c Config) error { applied <- c; return nil },
			Report:   func(err error) { t.Errorf("reported %v", err) },
		}.Run(ctx)
	}()
	write(t, file+".new", level("debug"))
	check(t, os.Rename(file+".new", file))
	// With the override the first content is already in force, so the second content is applied first.
	select {
	case c := <-applied:
		if c.Log != (Log{Level: "debug", Format: "json"}) {
			t.Errorf("applied %+v", c.Log)
		}
	case <-time.After(time.Minute):
		t.Error("nothing was applied")
	}
	cancel()
	check(t, <-done)
}

func TestFollow(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	write(t, file, level("info"))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	err := Follower{File: file, Parse: Parse, Report: func(err error) { t.Errorf("reported %v", err) }, Apply: func(Config) error {
		cancel()
		return nil
	}}.Run(ctx)
	if err != nil || !errors.Is(ctx.Err(), context.Canceled) {
		t.Error(err, ctx.Err())
	}
}
