package config

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/test/clock"
)

var update = flag.Bool("update", false, "rewrite golden files")

const header = "apiVersion: trimtab.io/v1alpha1\nkind: Config\n"

// TestBadFiles compares the messages for every file in testdata/bad: NAME.want has the messages for
// NAME.yaml.
func TestBadFiles(t *testing.T) {
	files, err := filepath.Glob("testdata/bad/*.yaml")
	if err != nil || len(files) < 15 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		t.Run(name, func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			c, err := Parse(name+".yaml", data)
			var bad *Error
			if !errors.As(err, &bad) || len(bad.Problems) == 0 {
				t.Fatalf("error is %v, want an *Error with problems", err)
			}
			if d := cmp.Diff(Config{}, c); d != "" {
				t.Errorf("a refused file still gave a configuration: %s", d)
			}
			golden(t, strings.TrimSuffix(file, ".yaml")+".want", unlisted(err.Error())+"\n")
		})
	}
}

func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("%s (-want +got):\n%s", file, d)
	}
}

// unlisted replaces lists that are made from declarations by their names, so that a new dialect or kind
// changes no golden file.
func unlisted(text string) string {
	for name, list := range map[string][]string{"DIALECTS": intent.Dialects(), "KINDS": intent.KindNames()} {
		text = strings.ReplaceAll(text, `"`+strings.Join(list, `" or "`)+`"`, name)
	}
	return text
}

func TestParseCompletesWithDefaults(t *testing.T) {
	with := func(change func(*Config)) Config {
		c := Default()
		change(&c)
		return c
	}
	for _, tc := range []struct {
		name, in string
		want     Config
	}{
		{"nothing but the header", header, Default()},
		{"empty sections", header + "hooks:\npools: ~\nlog: {}\n", Default()},
		{"one nested key", header + "hooks:\n  cpuset:\n    unsetQuota: false\n",
			with(func(c *Config) { c.Hooks.CPUSet.UnsetQuota = false })},
		{"lists replace", header + "dialects: [kubernetes]\n",
			with(func(c *Config) { c.Dialects = []string{"kubernetes"} })},
		{"no dialect at all", header + "dialects: []\n",
			with(func(c *Config) { c.Dialects = []string{} })},
		{"CPU list in quotes", header + "pools:\n  reserved: \"0\"\n",
			with(func(c *Config) { c.Pools.Reserved = "0" })},
		{"CPU list without", header + "pools:\n  reserved: 0-1,4\n",
			with(func(c *Config) { c.Pools.Reserved = "0-1,4" })},
		{"JSON is YAML", `{"apiVersion":"trimtab.io/v1alpha1","kind":"Config","strict":true}`,
			with(func(c *Config) { c.Strict = true })},
		{"byte order mark", "\ufeff" + header, Default()},
		{"Windows line ends", strings.ReplaceAll(header+"strict: true\n", "\n", "\r\n"),
			with(func(c *Config) { c.Strict = true })},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := Parse("f", []byte(tc.in))
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

func TestDefaultIsValid(t *testing.T) {
	if p := Validate(Default()); p != nil {
		t.Errorf("the default configuration is refused: %v", p)
	}
}

func TestLoad(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	if _, err := Load(file); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing file gives %v", err)
	}
	if err := os.WriteFile(file, Print(Default()), 0o600); err != nil {
		t.Fatal(err)
	}
	if c, err := Load(file); err != nil || !cmp.Equal(c, Default()) {
		t.Errorf("printed defaults load as %+v, %v", c, err)
	}
	if err := os.WriteFile(file, slices.Repeat([]byte("#"), MaxSize+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(file); err == nil || !strings.Contains(err.Error(), "larger than") {
		t.Errorf("huge file gives %v", err)
	}
}

// FuzzParse looks for panics, refusals without a reason, and configurations that change when they are
// printed and parsed.
func FuzzParse(f *testing.F) {
	files, _ := filepath.Glob("testdata/bad/*.yaml")
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add(Print(Default()))
	f.Add([]byte(header + "nri:\n  name: \"07\"\npools:\n  shared: \" 1 , 2\"\n"))
	f.Add([]byte(header + strings.Repeat("nri: {name: \"07\"}\n", 5_000)))
	f.Add([]byte(header + "pools:\n  shared: \"" + strings.Repeat("0-4095,", 20_000) + "1\"\n"))
	f.Add([]byte(header + "a: &a [x]\n" + strings.Repeat("b: [*a, *a]\n", 5_000)))
	f.Fuzz(func(t *testing.T, data []byte) {
		clock.Bound(t, len(data), func() {
			c, err := Parse("f", data)
			var bad *Error
			switch {
			case err == nil:
				again, err := Parse("printed", Print(c))
				if err != nil {
					t.Fatalf("%v\n%s", err, Print(c))
				}
				if d := cmp.Diff(c, again); d != "" {
					t.Fatalf("printing changed it: %s", d)
				}
			case !errors.As(err, &bad) || err.Error() == "":
				t.Fatalf("refused without a reason: %#v", err)
			}
		})
	})
}

// TestDocsExample parses the example of the users' page on authorization.
func TestDocsExample(t *testing.T) {
	page, err := os.ReadFile("../../docs/authorization.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "```yaml\n")
	example, _, found := strings.Cut(rest, "```")
	c, err := Parse("docs", []byte(example))
	if err != nil || !found || len(c.Authorization) != 5 || c.Authorization[2].MostCPUs != 8 {
		t.Errorf("%+v, %v", c.Authorization, err)
	}
}
