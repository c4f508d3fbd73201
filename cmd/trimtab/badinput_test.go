package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// badFiles are the files of TestBadInput.
var badFiles = map[string]string{
	"text.yaml":    "hello\n",
	"list.yaml":    "- a\n",
	"empty.yaml":   "",
	"binary":       "\x00\x01\x02",
	"key.yaml":     header + "polls: {}\n",
	"type.yaml":    header + "pools: {reserved: [1]}\n",
	"twice.yaml":   header + "strict: true\nstrict: false\n",
	"cpus.yaml":    header + "pools: {reserved: 3-1}\n",
	"level.yaml":   header + "log: {level: loud}\n",
	"spell.yaml":   header + "log: {level: wran}\n",
	"rule.yaml":    header + "rules: [{name: a, match: 'pod.', refuse: no}]\n",
	"tab.yaml":     "apiVersion:\ttrimtab.io/v1alpha1\n\tkind: Config\n",
	"version.yaml": "apiVersion: trimtab.io/v9\nkind: Config\n",
	"kind.yaml":    "apiVersion: trimtab.io/v1alpha1\nkind: Cnofig\n",
	"slo.yaml":     "apiVersion: slo.koordinator.sh/v1alpha1\nkind: NodeSLO\nmetadata: {name: n1}\nspec: {}\n",

	"s-key.yaml":    "name: x\nabuot: y\nsteps: []\n",
	"s-steps.yaml":  "name: x\nnode: {cpus: 1s x 2c}\n",
	"s-node.yaml":   "name: x\nnode: {cpus: 3q}\nsteps: [{name: a, run: []}]\n",
	"s-type.yaml":   "name: x\nsteps: 7\n",
	"s-deep.yaml":   "name: x\nnode: {cpus: 1s x 2c}\nsteps: [{name: a, run: [{pod: {nom: p}}]}]\n",
	"p-kind.yaml":   "metadata: {name: x}\n",
	"p-none.yaml":   "apiVersion: v1\nkind: Service\nmetadata: {name: x}\n",
	"p-type.yaml":   "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec: {containers: none}\n",
	"p-amount.yaml": "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec: {containers: [{name: c, resources: {requests: {cpu: lots}}}]}\n",
	"pod.yaml":      "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec: {containers: [{name: c}]}\n",
	"r-kind.jsonl":  `{"apiVersion":"x","kind":"y"}` + "\n",
	"nosocket":      "",
}

const header = "apiVersion: trimtab.io/v1alpha1\nkind: Config\n"

// badInputs are command lines, their exit codes, and what their errors say: what is wrong, and what to do or what is
// valid.
var badInputs = []struct {
	line      string
	code      int
	says, how string
}{
	// Commands, arguments and flags.
	{"sattus", exitUsage, `unknown command "sattus"`, `did you mean "status"?`},
	{"sim rum", exitUsage, `unknown command "rum"`, `did you mean "run"?`},
	{"config set a=b", exitUsage, `unknown command "set"`, "trimtab config --help"},
	{"completion klingon", exitUsage, `unknown command "klingon"`, "trimtab completion --help"},
	{"plan -f pod.yaml pod.yaml", exitUsage, "takes one file", "trimtab plan --help"},
	{"demo --serve --dir pod.yaml/d", exitUsage, "--dir", "name a directory that this user may write to"},
	{"adopt", exitUsage, "--from is missing", "kubelet"},
	{"adopt --from koordlet", exitUsage, `"koordlet" is not an agent that Trimtab can take over from`, "kubelet"},
	{"adopt --from kubelet --root . --socket nosocket", exitFailure, "kubelet left no state to take over", "there is no /var/lib/kubelet/cpu_manager_state"},
	{"status extra", exitUsage, `got "extra"`, "trimtab status --help"},
	{"status --outptu json", exitUsage, "unknown flag --outptu", "did you mean --output?"},
	{"status -o xml", exitUsage, `--output "xml"`, "want table or wide or json or yaml"},
	{"status -o", exitUsage, "--output needs a value", "table, wide, json, yaml"},
	{"status --wait=perhaps", exitUsage, "--wait=perhaps", "is ready"},
	{"status --class nonsense", exitUsage, "--class nonsense", "want one of system, dedicated"},
	{"explain", exitUsage, "needs the argument NAMESPACE/POD", "trimtab explain --help"},
	{"explain a b", exitUsage, `got "b"`, "trimtab explain --help"},
	{"explain a", exitUsage, `"a" is not`, "NAMESPACE/POD or NAMESPACE/POD/CONTAINER"},
	{"explain a/b/c/d", exitUsage, `"a/b/c/d" is not`, "NAMESPACE/POD or NAMESPACE/POD/CONTAINER"},
	{"explain /b", exitUsage, `"/b" is not`, "NAMESPACE/POD or NAMESPACE/POD/CONTAINER"},
	{"events --since x", exitUsage, `--since "x"`, "want "},
	{"top --interval x", exitUsage, `--interval "x"`, "want a duration such as"},
	{"top x", exitUsage, `got "x"`, "trimtab top --help"},
	{"hooks nonsense", exitUsage, `no hook "nonsense"`, "'trimtab hooks' lists all"},
	{"hooks bacht", exitUsage, `no hook "bacht"`, `did you mean "batch"?`},
	{"doctor x", exitUsage, `got "x"`, "trimtab doctor --help"},
	{"release x", exitUsage, `got "x"`, "trimtab release --help"},
	{"sysdump a b", exitUsage, `got "b"`, "takes only FILE.tar.gz"},
	{"diff x", exitUsage, `got "x"`, "trimtab diff --help"},
	{"diff --indices x,y", exitUsage, `"x" is not a plugin index`, "two digits"},
	{"diff --indices 10", exitUsage, "two observers are needed", "for example 00,99"},
	{"diff --duration x", exitUsage, `--duration "x"`, "want a duration such as"},
	{"demo x", exitUsage, `got "x"`, "trimtab demo --help"},
	{"demo --step x", exitUsage, `--step "x"`, "want a whole number"},
	{"demo --step 99", exitUsage, "--step 99", "steps 1 to 9"},
	{"demo --svg", exitUsage, "--svg needs a value", "file"},
	{"agent --attach telepathy", exitUsage, `attach: is "telepathy"`, `want "nri" or "cri"`},
	{"version x", exitUsage, `got "x"`, "trimtab version --help"},

	// Sockets.
	{"status --socket none.sock", exitUnreachable, "check that the agent runs", "--socket sets another path"},
	{"explain a/b --socket none.sock", exitUnreachable, "check that the agent runs", "--socket sets another path"},
	{"status --socket nosocket", exitUnreachable, "nosocket is not a socket", "--socket needs"},
	{"status --socket .", exitUnreachable, ". is not a socket", "--socket needs"},
	{"plan pod.yaml --socket none.sock", exitUnreachable, "check that the agent runs", "--socket sets another path"},
	{"plan pod.yaml --node 2c --socket x", exitUsage, "--node and --socket exclude each other", "no running agent"},
	{"diff --nri-socket none.sock", exitFailure, "no NRI socket at none.sock", "trimtab doctor"},

	// Configurations.
	{"config check", exitUsage, "needs the argument FILE...", "trimtab config check --help"},
	{"config check nothere.yaml", exitUsage, "nothere.yaml", "no such file"},
	{"config check .", exitUsage, "read .", "is a directory"},
	{"config check text.yaml", exitUsage, "text.yaml:1:", "want a mapping of keys"},
	{"config check list.yaml", exitUsage, "list.yaml:1:", "want a mapping of keys"},
	{"config check empty.yaml", exitUsage, "empty.yaml: is empty", "start with apiVersion"},
	{"config check binary", exitUsage, "binary: not YAML", "control characters"},
	{"config check key.yaml", exitUsage, "key.yaml:3: polls: unknown key", `nearest valid key "pools"`},
	{"config check type.yaml", exitUsage, "type.yaml:3: pools.reserved", "want a string, got a list"},
	{"config check twice.yaml", exitUsage, "twice.yaml:4: strict", "first given on line 3"},
	{"config check cpus.yaml", exitUsage, "cpus.yaml:3: pools.reserved", "the end is below the start"},
	{"config check level.yaml", exitUsage, "level.yaml:3: log.level", `want "debug" or "info"`},
	{"config check spell.yaml", exitUsage, "spell.yaml:3: log.level", `"warn"`},
	{"config check rule.yaml", exitUsage, "rule.yaml:3: rules[0].match", "line 1, column 5"},
	{"config check tab.yaml", exitUsage, "tab.yaml:2: not YAML", "tab character"},
	{"config check version.yaml", exitUsage, `is "trimtab.io/v9"`, `want "trimtab.io/v1alpha1"`},
	{"config check kind.yaml", exitUsage, `is "Cnofig"`, `want "Config"`},
	{"config check slo.yaml", exitUsage, `slo.yaml:2: kind: is "NodeSLO", want "Config"`, "trimtab config convert FILE"},
	{"config plan nothere.yaml", exitUsage, "nothere.yaml", "no such file"},
	{"hooks --config type.yaml", exitUsage, "type.yaml:3: pools.reserved", "want a string"},
	{"agent --config nothere.yaml", exitUsage, "nothere.yaml", "no such file"},
	{"doctor --config nothere.yaml", exitUsage, "nothere.yaml: no such file", "leave the flag out"},
	{"agent --config key.yaml", exitUsage, "key.yaml:3: polls: unknown key", `nearest valid key "pools"`},

	// Scenarios, pods, recordings.
	{"sim run nothere.yaml", exitUsage, "nothere.yaml", "no such file"},
	{"sim run text.yaml", exitUsage, "scenario text.yaml", "want a mapping of keys"},
	{"sim run empty.yaml", exitUsage, "name: the key is missing", `write for example "2s`},
	{"sim run s-key.yaml", exitUsage, `unknown key "abuot"`, `nearest valid key "about"`},
	{"sim run s-deep.yaml", exitUsage, `unknown key "steps[0].run[0].pod.nom"`, `nearest valid key "steps[0].run[0].pod.name"`},
	{"sim run s-steps.yaml", exitUsage, "steps", "the scenario has no steps"},
	{"sim run s-node.yaml", exitUsage, `"3q"`, "c (cores)"},
	{"sim run s-type.yaml", exitUsage, "steps:", "want a list, got a number"},
	{"plan nothere.yaml", exitUsage, "nothere.yaml", "no such file"},
	{"plan pod.yaml --config nothere.yaml", exitUsage, "nothere.yaml: no such file", "the agent's socket with --socket"},
	{"plan pod.yaml --config tab.yaml", exitUsage, "--config tab.yaml: yaml: line 2", "trimtab config check tab.yaml"},
	{"plan pod.yaml --node 2c --config nothere.yaml", exitUsage, "nothere.yaml: no such file", "trimtab config init"},
	{"plan pod.yaml --node 2c --config key.yaml", exitUsage, "key.yaml:3: polls: unknown key", "trimtab config check key.yaml"},
	{"plan pod.yaml --node 2c --config tab.yaml", exitUsage, "tab.yaml:2", "trimtab config check tab.yaml"},
	{"plan pod.yaml --node s-steps.yaml --config key.yaml", exitUsage, "--config needs --node with CPUs", "a scenario has its own configuration"},
	{"plan p-kind.yaml --node 2c", exitUsage, "the object has no kind", "must be a pod, a workload or a list"},
	{"plan p-none.yaml --node 2c", exitUsage, "only 1 Service", "name a file with a pod"},
	{"plan p-type.yaml --node 2c", exitUsage, "containers:", "want a list, got a text"},
	{"plan p-amount.yaml --node 2c", exitUsage, `"lots"`, "is not a quantity"},
	{"plan pod.yaml --node 3q", exitUsage, `"3q"`, "c (cores)"},
	{"replay nothere.jsonl", exitUsage, "nothere.jsonl", "no such file"},
	{"replay empty.yaml", exitUsage, "empty.yaml: the file is empty", "trimtab events --record"},
	{"replay text.yaml", exitUsage, "line 1: the file is not a recording", "not JSON"},
	{"replay r-kind.jsonl", exitUsage, `kind "y"`, `"Recording"`},
	{"sysdump nothere/x.tar.gz", exitUsage, "nothere/x.tar.gz", "no such file"},
}

// goWords are texts from Go's libraries that must not be shown to users.
var goWords = regexp.MustCompile(`unmarshal|Go (value|struct)|strconv|%!|<nil>|&\{|map\[|0x[0-9a-f]{6}|\*?\b(config|scenario|api|lifecycle|status)\.[A-Z]\w+|arg\(s\)|goroutine`)

func TestBadInput(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range badFiles {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, b := range badInputs {
		t.Run(b.line, func(t *testing.T) {
			t.Parallel()
			var out, said bytes.Buffer
			cmd := exec.CommandContext(t.Context(), "trimtab", strings.Fields(b.line)...) // TestMain adds it to PATH
			cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &out, &said
			cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0")
			err := cmd.Run()
			if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
				t.Fatal(err)
			}
			text := said.String()
			first, _, _ := strings.Cut(text, "\n")
			if code := cmd.ProcessState.ExitCode(); code != b.code {
				t.Errorf("exit code %d, want %d", code, b.code)
			}
			if !strings.HasPrefix(first, "trimtab: ") || !strings.Contains(text, b.says) || !strings.Contains(text, b.how) {
				t.Errorf("it says %q, want %q and %q", text, b.says, b.how)
			}
			if out.Len() > 0 {
				t.Errorf("on standard output: %q", out.String())
			}
			if at := goWords.FindString(text); at != "" {
				t.Errorf("%q in %q is a word of Go", at, text)
			}
			for line := range strings.Lines(text) {
				line = strings.TrimSuffix(line, "\n")
				if strings.ContainsFunc(line, func(r rune) bool { return r < ' ' || r == 0x7f }) {
					t.Errorf("%q has a control character", line)
				}
				if len(line) > 200 {
					t.Errorf("a line of %d columns: %q", len(line), line)
				}
			}
		})
	}
}
