// Package pages reads the commands in the Markdown pages of this repository, and runs the commands in a sandbox. It
// writes nothing outside of the sandbox, and it starts no cluster. A command that needs a cluster has a word with the
// name of the test that runs it.
//
// A block of commands is a fence with the language sh or console:
//
//   - sh: the block is a shell script. Each command of it must succeed.
//   - console: a line that begins with "$ " is a command. The lines below it show the output of the command. A line
//     "..." stands for any number of lines, and "..." inside a line for any text. A command without lines below may
//     print anything.
//
// Words after the language say how a block is run. Readers of a rendered page do not see these words:
//
//	exit=N               the last command must end with exit code N
//	agent                an agent runs on the node that trimtab demo describes, or with agent=SCENARIO.yaml on the
//	                     node of this scenario
//	interrupt            a command that still runs after two seconds gets SIGINT
//	background           the block has one command, which runs until the page ends. The next block is run when the command
//	                     has printed the output that the page shows
//	PLACEHOLDER=value    the value replaces this text in the commands, such as NAMESPACE/POD=shop/db
//	by=test/real.TestX   this package does not run the block. The named test does, with a cluster, a runtime or root
//	by=.ci/run           this package does not run the block. CI itself does
//	manual               no test runs the block. A table in the test of this package has the reason for each such page
//
// Words for all blocks of a page are in a comment at the top of the page:
// <!-- commands: by=test/vm/install.TestCluster -->.
package pages
