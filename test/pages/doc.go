// Package pages reads the commands of this repository's Markdown pages, and runs them in a sandbox. It writes nothing
// outside of its sandbox, and it starts no cluster: commands that need one name the test that runs them.
//
// A block of commands is a fence of the language sh or console:
//
//   - sh: a script. Each command has to succeed.
//   - console: lines that begin with "$ " are commands, those below are what the command prints. A line "..." stands for
//     any number of lines, and "..." inside of a line for any text. A command without lines below may print anything.
//
// Words after the language change how a block is run. Readers of a page do not see them:
//
//	exit=N               the last command ends with this exit code
//	agent                an agent runs on a described node, the one of trimtab demo, or of agent=SCENARIO.yaml
//	interrupt            commands that go on until they are interrupted get SIGINT after two seconds
//	background           its one command goes on until the page ends; it has printed what is shown before the next runs
//	PLACEHOLDER=value    a text in capital letters is replaced, such as NAMESPACE/POD=shop/db
//	by=test/real.TestX   not run here: this test runs the same, with a cluster, a runtime or root
//	by=.ci/run           not run here: CI itself calls it
//	manual               no test runs it. A table in this package's test says why, page by page
//
// Words that all blocks of a page have in common are in a comment at its top:
// <!-- commands: by=test/vm/install.TestCluster -->.
package pages
