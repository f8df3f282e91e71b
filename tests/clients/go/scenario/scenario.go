// Package scenario is what the Go programs share: they run one scenario for each line of their input.
//
// The program's argument is the broker's address. A line is the name of a scenario, a topic that no other scenario
// uses and, for some, an option. The answer is a line too: "ok", or "failed" and why.
package scenario

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"runtime/debug"
	"strings"
	"time"
)

// Timeout is how long a scenario may take.
const Timeout = 30 * time.Second

// T is one run of a scenario. Its checks end the run.
type T struct {
	context.Context
	Address string
	Topic   string
	Option  string
}

// Scenario ends by returning, or by a check of T that fails.
type Scenario func(t T)

type failure string

// Must ends the scenario if there is an error.
func (t T) Must(err error) {
	if err != nil {
		panic(failure(err.Error()))
	}
}

// Equal ends the scenario unless the two are the same, deep down.
func (t T) Equal(found, wanted any) {
	if !reflect.DeepEqual(found, wanted) {
		panic(failure(fmt.Sprintf("expected %v, found %v", wanted, found)))
	}
}

// Error ends the scenario unless the error is the one that is wanted.
func (t T) Error(found, wanted error) {
	if !errors.Is(found, wanted) {
		panic(failure(fmt.Sprintf("expected the error %v, found %v", wanted, found)))
	}
}

// Serve runs the scenarios that standard input asks for, until it ends.
func Serve(scenarios map[string]Scenario) {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		words := append(strings.Fields(lines.Text()), "", "")
		scenario := scenarios[words[0]]
		if scenario == nil {
			fmt.Println("failed there is no scenario", words[0])
			continue
		}
		fmt.Println(run(scenario, T{Address: os.Args[1], Topic: words[1], Option: words[2]}))
	}
}

func run(scenario Scenario, t T) (answer string) {
	ctx, cancel := context.WithTimeout(context.Background(), Timeout)
	defer cancel()
	defer func() {
		if fault := recover(); fault != nil {
			fmt.Fprintf(os.Stderr, "%v\n%s\n", fault, debug.Stack())
			answer = "failed " + strings.ReplaceAll(fmt.Sprint(fault), "\n", " ")
		}
	}()
	t.Context = ctx
	scenario(t)
	return "ok"
}
