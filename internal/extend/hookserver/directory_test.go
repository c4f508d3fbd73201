package hookserver

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/test/clock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// state returns the state of one file.
func state(s *Servers, name string) api.HookServer {
	all, _ := s.States()
	for _, st := range all {
		if st.File == name {
			return st
		}
	}
	return api.HookServer{}
}

// TestFollowed: created, changed, renamed and deleted files take effect within a second.
func TestFollowed(t *testing.T) {
	base := t.TempDir()
	s, dir := servers(t, func(o *Options) { o.Directory = filepath.Join(base, "hookserver.d") })
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- s.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	within := func(what string, is func() bool) {
		t.Helper()
		start := time.Now()
		eventually(t, what, is)
		if took := time.Since(start); took > time.Second {
			t.Errorf("%s: took %v", what, took)
		}
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	register(t, dir, "a.json", Registration{Endpoint: "/run/a.sock", Stages: create})
	within("created", func() bool { return s.Asks(lifecycle.CreateContainer) && !s.Asks(lifecycle.RunPodSandbox) })
	register(t, dir, "a.json", Registration{Endpoint: "/run/a.sock", Policy: Fail, Stages: []Stage{PreRunPodSandbox}})
	within("changed", func() bool { return !s.Asks(lifecycle.CreateContainer) && s.Asks(lifecycle.RunPodSandbox) })
	if err := os.Rename(filepath.Join(dir, "a.json"), filepath.Join(dir, "b.json")); err != nil {
		t.Fatal(err)
	}
	within("renamed", func() bool { return state(s, "b.json").InForce && !state(s, "a.json").InForce })

	if err := os.WriteFile(filepath.Join(dir, "b.json"), []byte(`{"remote-endpoint": "/ru`), 0o644); err != nil {
		t.Fatal(err)
	}
	within("half-written", func() bool { return strings.Contains(state(s, "b.json").Error, "stays in force") })
	if !s.Asks(lifecycle.RunPodSandbox) {
		t.Error("a half-written file ended the one before")
	}
	if err := os.Chmod(filepath.Join(dir, "b.json"), 0o666); err != nil {
		t.Fatal(err)
	}
	within("anybody's to write", func() bool {
		st := state(s, "b.json")
		return !st.InForce && strings.Contains(st.Error, "every user may write it")
	})
	register(t, dir, "b.json", Registration{Endpoint: "/run/a.sock", Stages: create})
	within("mended", func() bool { st := state(s, "b.json"); return st.InForce && st.Error == "" })
	if err := os.Remove(filepath.Join(dir, "b.json")); err != nil {
		t.Fatal(err)
	}
	within("deleted", func() bool { return !s.Asks(lifecycle.CreateContainer) })
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	register(t, dir, "c.json", Registration{Endpoint: "/run/a.sock", Stages: create})
	within("in a directory made anew", func() bool { return s.Asks(lifecycle.CreateContainer) })
}

func TestWhatIsRefused(t *testing.T) {
	good := `{"remote-endpoint":"/run/a.sock","runtime-hooks":["PreCreateContainer"]}`
	for name, c := range map[string]struct {
		text  string
		mode  os.FileMode
		owner int
		group int
		want  string
	}{
		"good":              {text: good, mode: 0o644},
		"own group's":       {text: good, mode: 0o664},
		"others' group's":   {text: good, mode: 0o664, group: 12345, want: "group 12345 may write it (mode 0664)"},
		"others may read":   {text: good, mode: 0o644, group: 12345},
		"everybody's":       {text: good, mode: 0o646, want: "chmod o-w"},
		"sticky":            {text: good, mode: 0o666 | os.ModeSticky, want: "every user may write it (mode 0666)"},
		"a stranger's":      {text: good, mode: 0o644, owner: 12345, want: "the owner is user 12345"},
		"empty":             {mode: 0o644, want: "is empty"},
		"half":              {text: good[:20], mode: 0o644, want: "not a registration"},
		"another type":      {text: `[]`, mode: 0o644, want: "not a registration"},
		"null":              {text: `null`, mode: 0o644, want: "remote-endpoint is missing"},
		"no endpoint":       {text: `{"runtime-hooks":["PreCreateContainer"]}`, mode: 0o644, want: "remote-endpoint is missing"},
		"relative":          {text: `{"remote-endpoint":"a.sock"}`, mode: 0o644, want: "absolute path"},
		"tcp":               {text: `{"remote-endpoint":"tcp://127.0.0.1:1"}`, mode: 0o644, want: "absolute path"},
		"long":              {text: `{"remote-endpoint":"/` + strings.Repeat("x", 120) + `"}`, mode: 0o644, want: "at most 107"},
		"odd policy":        {text: `{"remote-endpoint":"/a","failure-policy":"fail"}`, mode: 0o644, want: "set it to Ignore or Fail"},
		"with scheme":       {text: `{"remote-endpoint":"unix:///run/a.sock"}`, mode: 0o644},
		"odd stage and key": {text: `{"remote-endpoint":"/a","runtime-hooks":["PreTea"],"x":1}`, mode: 0o644, want: "the agent ignores unknown stages: PreTea"},
		"huge":              {text: strings.Repeat(" ", maxFileBytes) + good, mode: 0o644, want: "longer than 65536 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			s, dir := servers(t, nil)
			path := filepath.Join(dir, "a.json")
			put(t, path, c.text)
			if err := os.Chmod(path, c.mode); err != nil {
				t.Fatal(err)
			}
			if c.owner != 0 {
				if os.Getuid() != 0 {
					t.Skip("only root gives files away")
				}
				if err := os.Chown(path, c.owner, c.owner); err != nil {
					t.Fatal(err)
				}
			}
			if c.group != 0 && os.Getuid() != 0 {
				t.Skip("only root gives files away")
			}
			if err := chgrp(path, c.group); err != nil {
				t.Fatal(err)
			}
			s.Reload()
			st := state(s, "a.json")
			if (c.want == "") != (st.Error == "") || !strings.Contains(st.Error, c.want) {
				t.Errorf("%+v, want %q", st, c.want)
			}
			if inForce := c.want == "" || strings.HasPrefix(c.want, "the agent ignores unknown stages"); st.InForce != inForce {
				t.Errorf("%+v", st)
			}
		})
	}
}

// TestDirectoryOfOthers: a directory to which other users can add files is refused, because a file's author
// decides about every pod.
func TestDirectoryOfOthers(t *testing.T) {
	for name, c := range map[string]struct {
		mode  os.FileMode
		group int
		want  string
	}{
		"everybody's": {mode: 0o777, want: "every user may write it"}, "sticky": {mode: 0o777 | os.ModeSticky, want: "every user may write it"},
		"others' group's": {mode: 0o775, group: 12345, want: "group 12345 may write it"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.group != 0 && os.Getuid() != 0 {
				t.Skip("only root gives directories away")
			}
			s, dir := servers(t, nil)
			register(t, dir, "a.json", Registration{Endpoint: "/run/a.sock", Stages: create})
			if err := errors.Join(chgrp(dir, c.group), os.Chmod(dir, c.mode)); err != nil {
				t.Fatal(err)
			}
			s.Reload()
			if _, err := s.States(); err == nil || !strings.Contains(err.Error(), c.want) || s.Asks(lifecycle.CreateContainer) {
				t.Error(err)
			}
		})
	}
}

// TestDirectoryUnread: servers stay registered while the directory cannot be listed.
func TestDirectoryUnread(t *testing.T) {
	base := t.TempDir()
	s, dir := servers(t, func(o *Options) { o.Directory = filepath.Join(base, "d") })
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	register(t, dir, "a.json", Registration{Endpoint: "/run/a.sock", Stages: create})
	register(t, dir, "b.json", Registration{Endpoint: "/run/b.sock", Stages: create})
	put(t, filepath.Join(dir, "c.json"), "{") // one unreadable file does not affect the others
	s.Reload()
	if st, _ := s.States(); len(st) != 3 || !st[0].InForce || !st[1].InForce || st[2].InForce {
		t.Fatalf("%+v", st)
	}
	if err := os.Rename(dir, dir+".away"); err != nil {
		t.Fatal(err)
	}
	put(t, dir, "no directory")
	s.Reload()
	if st, err := s.States(); err == nil || !strings.Contains(err.Error(), "list ") || len(st) != 3 || !s.Asks(lifecycle.CreateContainer) {
		t.Errorf("%v: %+v", err, st)
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	s.Reload() // no server is registered any more
	if st, err := s.States(); err != nil || len(st) > 0 {
		t.Errorf("%v: %+v", err, st)
	}
}

// TestForeignSocket: the server's process must belong to root or the agent's own user.
func TestForeignSocket(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root gives files away")
	}
	f := serve(t)
	if err := os.Chown(f.socket, 12345, 12345); err != nil {
		t.Fatal(err)
	}
	s, dir := servers(t, nil)
	register(t, dir, "a.json", Registration{Endpoint: f.socket, Policy: Fail, Stages: create})
	s.Reload()
	if _, err := s.Ask(t.Context(), sample()); err == nil || !strings.Contains(err.Error(), "the owner is user 12345") || len(f.seen()) > 0 {
		t.Error(err)
	}
}

// TestOwnFile: the agent does not call itself because of the file that it wrote for proxies.
func TestOwnFile(t *testing.T) {
	f := serve(t)
	s, dir := servers(t, func(o *Options) { o.OwnSocket = f.socket })
	register(t, dir, "trimtab.json", Registration{Endpoint: f.socket, Stages: create})
	s.Reload()
	if _, err := s.Ask(t.Context(), sample()); err != nil || len(f.seen()) > 0 || s.Asks(lifecycle.CreateContainer) {
		t.Error(err, f.seen())
	}
}

// TestConnectionKept: a file that describes the same server with other text keeps its state; one that names
// another server does not.
func TestConnectionKept(t *testing.T) {
	f := serve(t)
	s, dir := servers(t, nil)
	register(t, dir, "a.json", Registration{Endpoint: f.socket, Stages: create})
	s.Reload()
	if _, err := s.Ask(t.Context(), sample()); err != nil {
		t.Fatal(err)
	}
	register(t, dir, "a.json", Registration{Endpoint: f.socket, Policy: Fail, Stages: create})
	s.Reload()
	if st := state(s, "a.json"); st.Calls != 1 || st.Policy != string(Fail) {
		t.Errorf("%+v", st)
	}
	register(t, dir, "a.json", Registration{Endpoint: f.socket + "2", Stages: create})
	s.Reload()
	if st := state(s, "a.json"); st.Calls != 0 {
		t.Errorf("%+v", st)
	}
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{"", "{}", `{"remote-endpoint":"/a","failure-policy":"Fail","runtime-hooks":["PreCreateContainer","x"]}`, `{"remote-endpoint":"unix://"}`} {
		f.Add([]byte(text))
	}
	f.Add([]byte(`{"remote-endpoint":"/a","runtime-hooks":[` + strings.Repeat(`"x",`, 15_000) + `"y"]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		defer clock.Watch(t, len(data))()
		r, _, err := parseRegistration(data)
		if err != nil {
			return
		}
		if !filepath.IsAbs(r.Endpoint) || len(r.Endpoint) > maxSocketPath || r.Policy != Ignore && r.Policy != Fail {
			t.Errorf("%+v", r)
		}
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if again, _, err := parseRegistration(text); err != nil || again.Endpoint != r.Endpoint {
			t.Errorf("%+v, then %+v, %v", r, again, err)
		}
	})
}

// chgrp changes a file's group; 0 keeps it.
func chgrp(path string, group int) error {
	if group == 0 {
		return nil
	}
	return os.Chown(path, -1, group)
}
