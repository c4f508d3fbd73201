package cli_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/trimtab/trimtab/internal/cli"
)

func TestPrint(t *testing.T) {
	for args, want := range map[string]string{
		"":        "for people\n",
		"-o json": "{\n  \"cpus\": 2\n}\n",
		"-o yaml": "cpus: 2\n",
	} {
		cmd := &cobra.Command{}
		f := cli.AddFormat(cmd, "table", "json", "yaml")
		if err := cmd.ParseFlags(strings.Fields(args)); err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		if err := f.Print(&b, map[string]int{"cpus": 2}, func() error { return cli.Write(&b, []byte("for people\n")) }); err != nil {
			t.Fatal(err)
		}
		if b.String() != want {
			t.Errorf("with %q: printed %q, want %q", args, b.String(), want)
		}
	}
}

func TestUnknownFormat(t *testing.T) {
	cmd := &cobra.Command{}
	f := cli.AddFormat(cmd, "table", "json")
	err := cmd.ParseFlags([]string{"-o", "xml"})
	if err == nil || !strings.Contains(err.Error(), "want table or json") {
		t.Errorf("-o xml: %v", err)
	}
	if f.String() != "table" {
		t.Errorf("-o xml chose %s", f)
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

func TestWriteFails(t *testing.T) {
	cmd := &cobra.Command{}
	f := cli.AddFormat(cmd, "json")
	if err := f.Print(full{}, 1, nil); err == nil || err.Error() != "write the answer: no space left on device" {
		t.Errorf("Print: %v", err)
	}
	if err := f.Print(full{}, func() {}, nil); err == nil || !strings.Contains(err.Error(), "encode the answer") {
		t.Errorf("Print of a function: %v", err)
	}
}

func TestLine(t *testing.T) {
	b := cli.Build{Version: "v1.2.3", Go: "go1.26.0", Platform: "linux/amd64"}
	if got, want := b.Line("trimtab"), "trimtab v1.2.3 go1.26.0 linux/amd64"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	b.Commit, b.Modified = "35e33df", true
	if got, want := b.Line("kubectl-trimtab"), "kubectl-trimtab v1.2.3 commit 35e33df (modified) go1.26.0 linux/amd64"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if this := cli.ThisBuild(); this.Go == "" || this.Version == "" || !strings.Contains(this.Platform, "/") {
		t.Errorf("the build of this test: %+v", this)
	}
}

func TestPrintAs(t *testing.T) {
	for args, want := range map[string]string{
		"":        "for people\n",
		"-o json": "{\n  \"apiVersion\": \"trimtab.io/v1alpha1\",\n  \"kind\": \"Machine\",\n  \"cpus\": 2\n}\n",
		"-o yaml": "apiVersion: trimtab.io/v1alpha1\ncpus: 2\nkind: Machine\n",
	} {
		cmd := &cobra.Command{}
		f := cli.AddFormat(cmd, "table", "json", "yaml")
		if err := cmd.ParseFlags(strings.Fields(args)); err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		if err := f.PrintAs(&b, "Machine", map[string]int{"cpus": 2}, func() error { return cli.Write(&b, []byte("for people\n")) }); err != nil {
			t.Fatal(err)
		}
		if b.String() != want {
			t.Errorf("with %q: printed %q, want %q", args, b.String(), want)
		}
	}
}
