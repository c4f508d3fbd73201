package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/report/status"
)

var update = flag.Bool("update", false, "rewrite golden files and docs/cli.md")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"trimtab": main})
}

// TestScripts runs testdata/script: each subcommand with its outputs and exit
// codes, as a process of its own.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		UpdateScripts:       *update,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("NO_COLOR", "1")
			// Each process would wait a second at its end for late reports.
			e.Setenv("GORACE", "atexit_sleep_ms=0")
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exits, "serve": serveStatus, "await": await, "conforms": conforms,
		},
	})
}

// exits CODE COMMAND... wants a command to end with an exit code.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND...")
	}
	code := 0
	err := ts.Exec(args[1], args[2:]...)
	var exit interface{ ExitCode() int }
	switch {
	case errors.As(err, &exit):
		code = exit.ExitCode()
	case err != nil:
		ts.Fatalf("%v", err)
	}
	if got := fmt.Sprint(code); got != args[0] {
		ts.Fatalf("exit code %s, want %s", got, args[0])
	}
}

// await FILE [TEXT] waits until a file exists, and contains the text.
func await(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 || len(args) > 2 {
		ts.Fatalf("usage: await FILE [TEXT]")
	}
	file := ts.MkAbs(args[0])
	there := func() bool {
		if len(args) == 1 {
			_, err := os.Stat(file)
			return err == nil
		}
		text, err := os.ReadFile(file)
		return err == nil && strings.Contains(string(text), args[1])
	}
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	late := time.NewTimer(time.Minute)
	defer late.Stop()
	for !there() {
		select {
		case <-look.C:
		case <-late.C:
			ts.Fatalf("%s did not come", args[0])
		}
	}
}

// serveStatus SOCKET serves prepared answers of an agent until the script ends.
func serveStatus(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: serve SOCKET")
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	socket, err := status.Open(ctx, ts.MkAbs(args[0]))
	ts.Check(err)
	go func() { done <- socket.Serve(ctx, canned{}) }()
	ts.Defer(func() {
		cancel()
		if err := <-done; err != nil {
			ts.Logf("serve: %v", err)
		}
	})
	await(ts, false, args)
}

// canned is a source with constant answers.
type canned struct{}

func (canned) Status() api.Node {
	c, _ := canned{}.Explain("shop", "db", "")
	c[0].Values = canned{}.withSecret()
	return api.Node{
		Version: "v9", Started: time.Now(), ConfigGen: 1, Containers: c,
		Attachments: []api.Attachment{{Name: "nri", State: "connected", Runtime: "containerd 2.2"}},
		CPUs: api.NodeCPUs{Online: "0-3", Shared: "2-3", Reclaimed: "2-3", Nodes: []api.NUMA{{CPUs: "0-3"}},
			Grants: []api.Grant{{Pod: "shop/db", Container: "pg", CPUs: "0-1"}}},
	}
}

func (canned) Explain(namespace, pod, container string) ([]api.Container, bool) {
	if namespace+"/"+pod != "shop/db" || (container != "" && container != "pg") {
		return nil, false
	}
	return []api.Container{{Pod: "shop/db", Name: "pg", State: "running", Class: "dedicated", QoS: "Guaranteed",
		CPUGroup: "exclusive", CPUs: "0-1", Values: canned{}.values()}}, true
}

func (canned) values() []api.Value {
	return []api.Value{{Field: "cpuset.cpus", Value: "0-1", Channel: "nri create", Applied: true,
		Why: lifecycle.Reason{Hook: "cpuset", Source: "scheduling.koordinator.sh/resource-status"}}}
}

// withSecret adds a value that no archive for maintainers may have.
func (canned) withSecret() []api.Value {
	return append(canned{}.values(), api.Value{Field: "env PASSWORD", Value: "hunter2", Kernel: "hunter2", Note: "it has hunter2", Applied: true})
}

func (canned) Config() api.Configuration {
	return api.Configuration{Keys: []api.Setting{
		{Key: "http.address", Value: `""`}, {Key: "rules", Value: `[{"name":"r","set":[{"field":"env","key":"TOKEN","value":"hunter2"}]}]`},
	}}
}

func (canned) Events(_ context.Context, since uint64) ([]api.Event, <-chan struct{}) {
	all := []api.Event{
		{Seq: 1, Kind: "RunPodSandbox", From: "nri", Pod: "shop/db"},
		{Seq: 2, Kind: "CreateContainer", From: "nri", Pod: "shop/db", Container: "pg", Values: canned{}.withSecret()},
	}
	return all[min(since, 2):], nil
}

func TestLaunchedByARuntime(t *testing.T) {
	for _, tc := range []struct {
		name string
		in   invocation
		want []string
	}{
		{"plugin's name", invocation{name: "/opt/nri/plugins/90-trimtab"}, []string{"agent"}},
		{"plugin's socket", invocation{name: "trimtab", launched: true}, []string{"agent"}},
		{"neither", invocation{name: "/usr/bin/trimtab"}, nil},
		{"digits of something else", invocation{name: "900-trimtab"}, nil},
		{"told what to do", invocation{name: "90-trimtab", args: []string{"status"}}, []string{"status"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := tc.in.commandArgs(); !slices.Equal(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
