// box is the only program of the tests' image, for sandboxes and workloads. It does what its words say, in their order:
//
//	env     prints the environment, sorted, one variable a line
//	exit N  ends with exit code N
//	linger N takes N seconds to end once it is told to
//	wait    waits for SIGTERM or SIGINT and ends with exit code 0
//
// After the last word it waits.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"syscall"
	"time"
)

const usage = "box: words are env, linger N, exit N and wait, not "

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	lingers := 0
	for words := os.Args[1:]; len(words) > 0; words = words[1:] {
		switch {
		case words[0] == "env":
			for _, variable := range slices.Sorted(slices.Values(os.Environ())) {
				fmt.Println(variable)
			}
		case words[0] == "exit" && len(words) == 2:
			os.Exit(number(words[1]))
		case words[0] == "linger" && len(words) >= 2:
			lingers, words = number(words[1]), words[1:]
		case words[0] == "wait" && len(words) == 1:
		default:
			refuse(words[0])
		}
	}
	<-ctx.Done()
	time.Sleep(time.Duration(lingers) * time.Second)
}

func number(word string) int {
	found, err := strconv.Atoi(word)
	if err != nil {
		refuse(word)
	}
	return found
}

func refuse(word string) {
	fmt.Fprintf(os.Stderr, "%s%q\n", usage, word)
	os.Exit(2)
}
