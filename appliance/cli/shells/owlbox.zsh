#compdef owlbox
# Completion of owlbox for zsh. Written by `make docs` from the command line; do not edit.
typeset -gA _owlbox_words
_owlbox_words=(
  '.' 'ask:ask one question; text from a pipe is added to it
chat:talk, on the full screen of a terminal or line by line
tui:the full screen
prompt-size:tokens of the prompt by part, counted by the broker
status:what runs and what it is doing
reload:make the running core read its configuration again
init:make a home
serve:run the core until it is stopped
broker:run the model broker until it is stopped
web:serve the web page until stopped; off unless channels.web.enabled
doctor:look everything over
maintain:one round of maintenance; ends at once when nothing is due
nuke:delete everything of one kind; without --yes only count it
config:every key of the configuration, and changing one
onboard:set a home up by questions; Return keeps what is there
backup:save the database, the configuration and box/ into one file; list shows what was saved
restore:take a backup into use; what was there before is kept aside
update:another version from a signed bundle, with a way back
metrics:figures in the text format of Prometheus
logs:lines of the logs of all processes, oldest first
export:everything as JSON lines, Markdown, TOML and CSV, in a new folder
import:make a new home of what export wrote
entry:what Owlbox knows
search:find notes; with --in also threads, memory, skills, tools
skill:what Owlbox knows how to do
memory:what is remembered of people and groups
model:models  those on this device, and what providers offer
usage:what requests to models took and cost
thread:conversations  list, view, follow, search, rename, fork, export
session:who talks to Owlbox, and in which channel
run:thread, with the settings of its work
people:who is who  persons, their addresses in channels, groups
channel:ways to people elsewhere  mail, Matrix, Slack and others
context:what Owlbox stores, as drives and folders
task:work that is done later, in the background
schedule:what is done at its time, again and again or once
cron:messages that are said in a conversation at their times
remind:be reminded of something  owlbox remind call the plumber tomorrow at noon
worker:processes that work through the queue
packet:what a model is sent in a thread
undo:take back everything a thread changed in entries, or nothing of it
history:who changed an entry, newest first; also of one that is gone
sql:ask the database in SQL, reading only; without a query, its tables and columns
approve:let happen what a thread waits for, or answer its question
reject:refuse what a thread waits for, which ends its answer
grants:what threads tainted by untrusted text may do without asking
policy:what tools may do at all
tool:tools  which there are, and how their calls ended
secret:keys and passwords, kept encrypted by the broker
role:as whom models work
job:work that was handed to a role
document:what every conversation is told, and what the heartbeat looks after
capabilities:write CAPABILITIES.md anew  what this installation can do
mcp:servers of tools that speak MCP
mcp-serve:offer what Owlbox knows to other agents (Model Context Protocol), read-only
acp:talk with an editor (Agent Client Protocol)  name it there as the agent'\''s command
call:any method of the socket  owlbox call METHOD key=value; without one, all of them
completion:the script that completes commands in bash, zsh or fish
heartbeat:look after what HEARTBEAT.md says, as far as it is due
mute:hear of nothing unasked for a while
help:how to use a command; with --all, every command
door:what sshd runs for user owl  the terminal interface, or the command that was asked for
docs:the reference documents, made from the code
read:Read a note by its reference.
remember:Keep a fact or note for later.
note:Write a new note into the person'\''s folder.'
  'config' 'list:every key with its value; those you set are marked *
set:change one key in owlbox.toml; everything else in the file stays as it is'
  'update' 'check:whether there is a newer version at the source, or on a disk that is plugged in
apply:take a version into use; what is not well is taken back
rollback:go back to the version before the last update
status:which version runs, what there is to go back to, and what became of updates
recover:finish an update that was cut off, forward or back'
  'entry' 'list:entries by reference
view:the text of one entry
set:write or edit an entry, or every entry of a pattern
get:the text of an entry; of a pattern a list of what matches
rm:remove an entry, or every entry of a pattern
cp:copy an entry
mv:move an entry
waiting:what models want to change and may not without a word from you
trust:take the marks of strangers off an entry that you have read
accept:let a change happen that waits
reject:refuse a change that waits
update:note how a thread'\''s work stands'
  'skill' 'list:every skill, and why one cannot be used
show:the text of one, or of a file beside it
search:skills that some words find, best first
create:write a new one, and open it in an editor
validate:whether skills are as the public format wants them
install:from a folder, a file, a zip, a tar or a Git URL, after a review
remove:remove one with its files
delete:remove one with its files
trust:show its description to models, until it changes
prepare:install the packages that a trusted one declares, for it alone'
  'memory' 'list:what is remembered, newest first
add:remember something; what says the same already is brought up to date
search:what is remembered that fits some words
show:one record as a file
forget:forget one  its text, passages, vectors and history
topics:the topics and how much each has'
  'model' 'list:models here and in the catalogue, by the memory they want
add:fetch a model of the catalogue, or copy a .gguf file
rm:delete a model'\''s file, and what is kept of its download
offer:the better model that fits this computer; say yes or no to it
use:answer with this model, or find by meaning with this embedding model
info:everything about one model; reads the whole file
bench:what a model is good for on this device  everyday requests, speed, memory, tool calls
providers:how each configured provider is doing, and what is spent
remote:every model that the configured providers offer; asks them
reset:ask a provider again at once that is left alone after failures'
  'thread' 'list:newest first
view:everything in one thread
search:find text in what was said, exactly as it was written, the newest first
delete:delete a thread and everything said in it
follow:show a thread as it grows; ends when the thread ends; a chat stays open (Ctrl+C ends the showing)
tree:every branch of a thread and of its forks
abort:end only what is being answered; what is queued comes next
rename:give a thread another name
inject:say something to a thread, also while it is answering
fork:a new thread that begins where this one stands
jump:go on after another event of a thread
config:what a thread is set to; change it
export:a thread as JSON lines, after those it was forked off'
  'session' 'list:sessions, the newest activity first
view:one session and its threads
archive:put a session away until a person says something in it
resume:make a session active again
close:let a session take no more messages
delete:delete a closed session with everything said in it
export:a session as JSON lines
import:read exported sessions; what is here already stays as it is'
  'run' 'list:newest first
view:what a thread is set to, and what waits in it
tree:every branch of a thread and of its forks
abort:end only what is being answered; what is queued comes next
rename:give a thread another name
inject:say something to a thread, also while it is answering
fork:a new thread that begins where this one stands
jump:go on after another event of a thread
config:what a thread is set to; change it'
  'people' 'list:everybody who was added
show:one person  rights, groups, addresses
add:add a person
remove:remove a person; what was said stays
deactivate:serve a person nowhere any more; what they have stays
activate:serve a person again
link:say whose an address is; all addresses of a person share one session
unlink:take back a link
keys:the keys with which people come over ssh
add-key:let a person in over ssh; makes the person where there is none
remove-key:let nobody in with a key any more
invite:make a one-time invite to the web page; makes the person where there is none
password:set a password for the web page; asks for it, or reads standard input
token:make a token for a program; it is shown once. logins lists them, logout ends one
logins:who is logged in to the web page and which programs have a token, and since when
logout:end a login of the web page, or a program'\''s token
group:groups and who is in them; with a name, make or change one'
  'channel' 'list:every channel  whether it is on and connected, and why not
enable:switch a channel on; a running core connects it at once
disable:switch a channel off; what waits to be sent stays
test:try what a channel needs, on or off
rooms:rooms in which the assistant was addressed, and the group that each is
devices:devices that write in encrypted rooms, with their fingerprints
verify:trust a device whose fingerprint you have compared, or a user'\''s master key'
  'context' 'drives:Like df  list the drives that items are kept on, with how many are on each.
tree:Like tree  show folders and items of a drive as an indented tree.
size:Like du  how many bytes a folder, a drive or an item takes.
list:Like ls  list items by reference.
read:Like cat  read the text of an item, or some lines of it.
info:Like stat  what is known about an item  id, title, type, size, lines, times.
exists:Like test -e  whether an item or folder is there.
lines:Like wc -l  how many lines a text has.
find:Find items whose title or text holds some letters, newest first.
grep:Like grep -rn  lines of items that match a regular expression, with their numbers.
mkdir:Like mkdir -p  make a folder; it may be there already.
write:Like tee  keep a text under a path; an item that is there is only replaced with on_conflict=overwrite.
edit:Like patch  change some lines of an item; all line numbers mean the text as it was before.
delete:Like rm  remove an item, or a folder with recursive=true.
copy:Like cp -r  copy an item, or a folder with everything in it, to another path or drive.
move:Like mv  move an item, or a folder with everything in it, to another path or drive.
search:Find items by their words and their meaning, best first.
chunks:Show the passages under which search knows an item.
reembed:Make all vectors anew, after the embedding model was changed.
add:read files, folders and pages, and keep what they say
refresh:read what was added again, and keep what has changed'
  'task' 'add:Have work done later, in the background.
update:Change a task that has not begun.
delete:Delete a task that nobody works on.
list:List tasks, newest first.
view:Read everything about a task.
reset:Begin a task anew  pending again, without claim, reason and output.
cancel:Give a task up, also one that is being worked on.
done:Mark a task as done that the person has done themselves.
watch:follow a task until it ends; the exit code is 0 when it is complete, 1 when it failed, 5 when it waits for a person'
  'schedule' 'add:add one, and show what its words mean
list:all of them, in the order in which they were made
view:everything about one  its rule, its next times, how it went
enable:resume one
resume:the same as enable
disable:pause one
pause:the same as disable
delete:delete one
trigger:do it now, whatever its time
update:change one
preview:what words about time mean, without adding anything
run:do what is due now and end, for timers; nothing is done twice, whoever else does the same'
  'cron' 'list:all of them
add:add one
remove:remove one
enable:enable one
disable:disable one'
  'worker' 'run:work here  do the next task that is due, then end; with nothing due, end at once
start:start such a worker in the background; it outlives this command
list:newest first
status:everything about one worker, and what it works on
stop:ask a worker to stop; it gives back what it holds
kill:end a worker at once; what it held is pending again
log:the end of a worker'\''s log
reap:bury workers that have died, and give back what they held'
  'packet' 'size:what fills the packet that would be sent now
show:what a turn'\''s model was sent and said, word for word
compact:summarize the older part of a conversation; the originals stay'
  'grants' 'list:the grants that hold
add:let such calls pass for a while
revoke:ask again from now on'
  'policy' 'show:the policy that holds
check:look a policy file over; without one, that of the configuration
reload:make the running core read the policy again
set:give a conversation a policy of its own, over the one for all
unset:let the policy for all hold in a conversation again
test:what the policy would say; nothing is started and nothing is written down
log:what was allowed, refused and done, newest first'
  'tool' 'list:every tool with its state'
  'secret' 'list:their names, never their values
set:keep one; its value comes from a prompt or a pipe, never from an argument
show:everything about one but its value
rm:forget one
expire:let one end at a time; it cannot be read from then on
purge:remove those that have expired
rotate:encrypt all of them anew under a new key, all or none
unlock:give the passphrase, once after each start of the broker'
  'role' 'list:every role as it holds now
view:one role  tools, caps, words'
  'job' 'list:newest first
view:what was asked and what came of it
stop:end the work on it; what it has completed stays'
  'document' 'list:the documents  when each is loaded, and whether the assistant may change it
view:one document
edit:change one in $VISUAL or $EDITOR
write:put a text in the place of one'
  'mcp' 'servers:every server, and what is known of it
list:tools of servers; asks those that were never asked
ping:whether a server answers, and how fast
add:configure a server
remove:forget a server with its index and its secrets
auth:log in to a server behind an address
deauth:forget a login
search:tools for a purpose, out of the index
info:a tool with its arguments, or a server with its resources and prompts
exec:call a tool of a server
import-global:add the servers that another program of yours has
index:ask every server and make its tools findable
resource:read a resource of a server; without an address, list them
prompt:a prompt of a server, filled in; without a name, list them
task:long pieces of work of a server'
)
typeset -gA _owlbox_options
_owlbox_options=(
  '.' '-h --help --home= --json --version'
  'ask' '-h --help --home= --json --user= --group= --thread= --later'
  'chat' '-h --help --home= --json --user= --group= --thread= --thread-id= -p= --prompt= --plain'
  'tui' '-h --help --home= --json --user= --group= --thread= --thread-id= -p= --prompt= --plain'
  'prompt-size' '-h --help --home= --json --role='
  'status' '-h --help --home= --json --watch='
  'reload' '-h --help --home= --json'
  'init' '-h --help --home= --json --force --new-database'
  'serve' '-h --help --home= --json --log-level= --init'
  'broker' '-h --help --home= --json --log-level= --socket='
  'web' '-h --help --home= --json --log-level='
  'doctor' '-h --help --home= --json --repair'
  'maintain' '-h --help --home= --json --now'
  'nuke' '-h --help --home= --json --yes'
  'config' '-h --help --home= --json'
  'config list' '-h --help --home= --json --changed'
  'config set' '-h --help --home= --json'
  'onboard' '-h --help --home= --json --no-test'
  'backup' '-h --help --home= --json --to= --encrypt'
  'restore' '-h --help --home= --json --dry-run'
  'update' '-h --help --home= --json'
  'update check' '-h --help --home= --json --quiet'
  'update apply' '-h --help --home= --json'
  'update rollback' '-h --help --home= --json'
  'update status' '-h --help --home= --json'
  'update recover' '-h --help --home= --json'
  'metrics' '-h --help --home= --json'
  'logs' '-h --help --home= --json --run= --level= --process= --limit= --follow'
  'export' '-h --help --home= --json --run='
  'import' '-h --help --home= --json'
  'entry' '-h --help --home= --json --user= --group='
  'entry list' '-h --help --home= --json --user= --group= --limit= --offset='
  'entry view' '-h --help --home= --json --user= --group= --line= --limit='
  'entry set' '-h --help --home= --json --user= --group= --search= --replace= --literal --title= --description= --mime= --source-url= --summary= --attributes= --expected-hash= --yes --wanted= --thread= --visibility='
  'entry get' '-h --help --home= --json --user= --group= --line= --limit= --persist= --preview --wanted= --thread='
  'entry rm' '-h --help --home= --json --user= --group= --yes --preview --wanted= --thread='
  'entry cp' '-h --help --home= --json --user= --group= --thread= --visibility='
  'entry mv' '-h --help --home= --json --user= --group= --thread= --visibility='
  'entry waiting' '-h --help --home= --json --user= --group= --watch= --limit= --thread='
  'entry trust' '-h --help --home= --json --user= --group='
  'entry accept' '-h --help --home= --json --user= --group= --thread='
  'entry reject' '-h --help --home= --json --user= --group= --thread='
  'entry update' '-h --help --home= --json --user= --group= --status= --thread='
  'search' '-h --help --home= --json --user= --group= --in= --by= --limit='
  'skill' '-h --help --home= --json'
  'skill list' '-h --help --home= --json --user= --group='
  'skill show' '-h --help --home= --json --user= --group='
  'skill search' '-h --help --home= --json --user= --group='
  'skill create' '-h --help --home= --json --description= --file= --force --user= --group='
  'skill validate' '-h --help --home= --json'
  'skill install' '-h --help --home= --json --folder= --yes --trust --force --user= --group='
  'skill remove' '-h --help --home= --json --user= --group='
  'skill delete' '-h --help --home= --json --user= --group='
  'skill trust' '-h --help --home= --json --no --user= --group='
  'skill prepare' '-h --help --home= --json --user= --group='
  'memory' '-h --help --home= --json --user= --group='
  'memory list' '-h --help --home= --json --user= --group= --topic= --kind= --tag= --limit= --owner='
  'memory add' '-h --help --home= --json --user= --group= --topic= --tag= --importance= --days= --owner='
  'memory search' '-h --help --home= --json --user= --group= --owner='
  'memory show' '-h --help --home= --json --user= --group= --owner='
  'memory forget' '-h --help --home= --json --user= --group= --yes --owner='
  'memory topics' '-h --help --home= --json --user= --group= --owner='
  'model' '-h --help --home= --json'
  'model list' '-h --help --home= --json --watch='
  'model add' '-h --help --home= --json'
  'model rm' '-h --help --home= --json --yes --force --cache'
  'model offer' '-h --help --home= --json'
  'model use' '-h --help --home= --json'
  'model info' '-h --help --home= --json'
  'model bench' '-h --help --home= --json --seconds='
  'model providers' '-h --help --home= --json --watch='
  'model remote' '-h --help --home= --json'
  'model reset' '-h --help --home= --json'
  'usage' '-h --help --home= --json --watch= --by= --days= --person= --session= --requests --limit='
  'thread' '-h --help --home= --json --user= --group='
  'thread list' '-h --help --home= --json --user= --group= --watch= --type= --limit= --offset='
  'thread view' '-h --help --home= --json --user= --group= --only= --follow'
  'thread search' '-h --help --home= --json --user= --group= --days= --limit='
  'thread delete' '-h --help --home= --json --user= --group='
  'thread follow' '-h --help --home= --json --user= --group= --interval='
  'thread tree' '-h --help --home= --json --user= --group='
  'thread abort' '-h --help --home= --json --user= --group='
  'thread rename' '-h --help --home= --json --user= --group='
  'thread inject' '-h --help --home= --json --user= --group='
  'thread fork' '-h --help --home= --json --user= --group= --at= --name='
  'thread jump' '-h --help --home= --json --user= --group='
  'thread config' '-h --help --home= --json --user= --group= --model= --role= --temperature= --context-limit= --approval= --no-repo --repo --no-web --web --no-interaction --interaction --no-proposals --proposals --yolo --no-yolo'
  'thread export' '-h --help --home= --json --user= --group= -o= --output='
  'session' '-h --help --home= --json'
  'session list' '-h --help --home= --json --watch= --user= --group= --type= --status= --after= --before= --limit= --offset='
  'session view' '-h --help --home= --json'
  'session archive' '-h --help --home= --json'
  'session resume' '-h --help --home= --json'
  'session close' '-h --help --home= --json --final'
  'session delete' '-h --help --home= --json'
  'session export' '-h --help --home= --json -o= --output= --all='
  'session import' '-h --help --home= --json'
  'run' '-h --help --home= --json --user= --group='
  'run list' '-h --help --home= --json --user= --group= --limit= --offset='
  'run view' '-h --help --home= --json --user= --group='
  'run tree' '-h --help --home= --json --user= --group='
  'run abort' '-h --help --home= --json --user= --group='
  'run rename' '-h --help --home= --json --user= --group='
  'run inject' '-h --help --home= --json --user= --group='
  'run fork' '-h --help --home= --json --user= --group= --at= --name='
  'run jump' '-h --help --home= --json --user= --group='
  'run config' '-h --help --home= --json --user= --group= --model= --role= --temperature= --context-limit= --approval= --no-repo --repo --no-web --web --no-interaction --interaction --no-proposals --proposals --yolo --no-yolo'
  'people' '-h --help --home= --json'
  'people list' '-h --help --home= --json'
  'people show' '-h --help --home= --json'
  'people add' '-h --help --home= --json'
  'people remove' '-h --help --home= --json'
  'people deactivate' '-h --help --home= --json'
  'people activate' '-h --help --home= --json'
  'people link' '-h --help --home= --json'
  'people unlink' '-h --help --home= --json'
  'people keys' '-h --help --home= --json'
  'people add-key' '-h --help --home= --json'
  'people remove-key' '-h --help --home= --json'
  'people invite' '-h --help --home= --json'
  'people password' '-h --help --home= --json --remove'
  'people token' '-h --help --home= --json --person='
  'people logins' '-h --help --home= --json'
  'people logout' '-h --help --home= --json'
  'people group' '-h --help --home= --json --add= --leave= --remove --room= --deactivate --activate'
  'channel' '-h --help --home= --json'
  'channel list' '-h --help --home= --json'
  'channel enable' '-h --help --home= --json'
  'channel disable' '-h --help --home= --json'
  'channel test' '-h --help --home= --json'
  'channel rooms' '-h --help --home= --json'
  'channel devices' '-h --help --home= --json'
  'channel verify' '-h --help --home= --json --undo'
  'context' '-h --help --home= --json --user= --group='
  'context drives' '-h --help --home= --json --user= --group='
  'context tree' '-h --help --home= --json --user= --group= --drive= --max-depth= --items-per-dir='
  'context size' '-h --help --home= --json --user= --group= --drive= --non-recursive'
  'context list' '-h --help --home= --json --user= --group= --drive= --non-recursive --limit= --offset= --path='
  'context read' '-h --help --home= --json --user= --group= --drive= --offset= --limit= --column='
  'context info' '-h --help --home= --json --user= --group= --drive='
  'context exists' '-h --help --home= --json --user= --group= --drive='
  'context lines' '-h --help --home= --json --user= --group= --drive='
  'context find' '-h --help --home= --json --user= --group= --limit='
  'context grep' '-h --help --home= --json --user= --group= --drive= --path= --glob= --kind= --ignore-case --context= --max-results='
  'context mkdir' '-h --help --home= --json --user= --group= --drive='
  'context write' '-h --help --home= --json --user= --group= --drive= --title= --description= --on-conflict= --file= --overwrite'
  'context edit' '-h --help --home= --json --user= --group= --drive= --patches= --replace='
  'context delete' '-h --help --home= --json --user= --group= --drive= --recursive --force'
  'context copy' '-h --help --home= --json --user= --group= --src-drive= --dst-drive= --overwrite'
  'context move' '-h --help --home= --json --user= --group= --src-drive= --dst-drive= --overwrite'
  'context search' '-h --help --home= --json --user= --group= --top-k= --threshold= --drive= --path= --fusion= -k='
  'context chunks' '-h --help --home= --json --user= --group= --drive='
  'context reembed' '-h --help --home= --json --user= --group='
  'context add' '-h --help --home= --json --user= --group= --on-conflict= --hidden --no-ignore --prompt-addition='
  'context refresh' '-h --help --home= --json --user= --group= --all'
  'task' '-h --help --home= --json --user= --group='
  'task add' '-h --help --home= --json --user= --group= --description= --priority= --blocked-by= --deadline= --context='
  'task update' '-h --help --home= --json --user= --group= --name= --description= --priority= --blocked-by= --deadline='
  'task delete' '-h --help --home= --json --user= --group='
  'task list' '-h --help --home= --json --user= --group= --watch= --status= --priority= --limit= --offset='
  'task view' '-h --help --home= --json --user= --group= --follow'
  'task reset' '-h --help --home= --json --user= --group='
  'task cancel' '-h --help --home= --json --user= --group='
  'task done' '-h --help --home= --json --user= --group='
  'task watch' '-h --help --home= --json --user= --group= --interval='
  'schedule' '-h --help --home= --json --user= --group='
  'schedule add' '-h --help --home= --json --user= --group= --frequency= --description= --action= --mode= --role= --timezone= --notify= --tell='
  'schedule list' '-h --help --home= --json --user= --group= --watch= --enabled --disabled --status= --type= --limit= --soonest --offset='
  'schedule view' '-h --help --home= --json --user= --group='
  'schedule enable' '-h --help --home= --json --user= --group='
  'schedule resume' '-h --help --home= --json --user= --group='
  'schedule disable' '-h --help --home= --json --user= --group='
  'schedule pause' '-h --help --home= --json --user= --group='
  'schedule delete' '-h --help --home= --json --user= --group='
  'schedule trigger' '-h --help --home= --json --user= --group='
  'schedule update' '-h --help --home= --json --user= --group= --name= --frequency= --description='
  'schedule preview' '-h --help --home= --json --user= --group= --timezone='
  'schedule run' '-h --help --home= --json --user= --group='
  'cron' '-h --help --home= --json'
  'cron list' '-h --help --home= --json'
  'cron add' '-h --help --home= --json --channel= --timezone= --disabled'
  'cron remove' '-h --help --home= --json'
  'cron enable' '-h --help --home= --json'
  'cron disable' '-h --help --home= --json'
  'remind' '-h --help --home= --json --user= --group= --when= --timezone='
  'worker' '-h --help --home= --json'
  'worker run' '-h --help --home= --json --log-level= --persist --task-id= --no-eval-schedules --task-may-fail'
  'worker start' '-h --help --home= --json --persist --task-id= --no-eval-schedules'
  'worker list' '-h --help --home= --json --watch= --status= --limit= --offset='
  'worker status' '-h --help --home= --json'
  'worker stop' '-h --help --home= --json'
  'worker kill' '-h --help --home= --json'
  'worker log' '-h --help --home= --json --follow'
  'worker reap' '-h --help --home= --json'
  'packet' '-h --help --home= --json'
  'packet size' '-h --help --home= --json'
  'packet show' '-h --help --home= --json --turn= --part='
  'packet compact' '-h --help --home= --json'
  'undo' '-h --help --home= --json --dry-run --alone'
  'history' '-h --help --home= --json --user= --group= --limit= --patch --thread='
  'sql' '-h --help --home= --json --limit='
  'approve' '-h --help --home= --json --thread= --output= --failed --remember= --no-wait'
  'reject' '-h --help --home= --json --thread= --output= --failed --no-wait'
  'grants' '-h --help --home= --json'
  'grants list' '-h --help --home= --json --watch= --all'
  'grants add' '-h --help --home= --json --from= --for= --person='
  'grants revoke' '-h --help --home= --json'
  'policy' '-h --help --home= --json'
  'policy show' '-h --help --home= --json --session='
  'policy check' '-h --help --home= --json'
  'policy reload' '-h --help --home= --json'
  'policy set' '-h --help --home= --json'
  'policy unset' '-h --help --home= --json'
  'policy test' '-h --help --home= --json --tool= --role= --user= --group= --admin --session= --mount= --write --network= --target= --cpus= --memory= --swap= --tmpfs= --disk= --pids='
  'policy log' '-h --help --home= --json --kind= --session= --run= --rule= --severity= --limit= --before='
  'tool' '-h --help --home= --json'
  'tool list' '-h --help --home= --json'
  'secret' '-h --help --home= --json'
  'secret list' '-h --help --home= --json'
  'secret set' '-h --help --home= --json --expires='
  'secret show' '-h --help --home= --json --yes'
  'secret rm' '-h --help --home= --json'
  'secret expire' '-h --help --home= --json'
  'secret purge' '-h --help --home= --json'
  'secret rotate' '-h --help --home= --json --to='
  'secret unlock' '-h --help --home= --json'
  'role' '-h --help --home= --json'
  'role list' '-h --help --home= --json'
  'role view' '-h --help --home= --json'
  'job' '-h --help --home= --json'
  'job list' '-h --help --home= --json --watch= --status= --limit='
  'job view' '-h --help --home= --json'
  'job stop' '-h --help --home= --json'
  'document' '-h --help --home= --json --user= --group='
  'document list' '-h --help --home= --json --user= --group='
  'document view' '-h --help --home= --json --user= --group='
  'document edit' '-h --help --home= --json --user= --group='
  'document write' '-h --help --home= --json --user= --group='
  'capabilities' '-h --help --home= --json --no-mcp'
  'mcp' '-h --help --home= --json'
  'mcp servers' '-h --help --home= --json'
  'mcp list' '-h --help --home= --json --watch= --fresh'
  'mcp ping' '-h --help --home= --json'
  'mcp add' '-h --help --home= --json --command= --url= --args= --arg= --env= --header= --client-id= --client-secret-env= --issuer= --cwd= --mount= --writable= --network --expose= --timeout= --transport= --replace --no-index'
  'mcp remove' '-h --help --home= --json --dry-run --keep-auth'
  'mcp auth' '-h --help --home= --json --answer='
  'mcp deauth' '-h --help --home= --json'
  'mcp search' '-h --help --home= --json --keyword-only --semantic-only --limit='
  'mcp info' '-h --help --home= --json'
  'mcp exec' '-h --help --home= --json'
  'mcp import-global' '-h --help --home= --json --dry-run'
  'mcp index' '-h --help --home= --json'
  'mcp resource' '-h --help --home= --json'
  'mcp prompt' '-h --help --home= --json'
  'mcp task' '-h --help --home= --json'
  'mcp-serve' '-h --help --home= --json --tasks --socket= --peer'
  'acp' '-h --help --home= --json'
  'call' '-h --help --home= --json --describe --quiet'
  'completion' '-h --help --home= --json'
  'heartbeat' '-h --help --home= --json --now --list'
  'mute' '-h --help --home= --json'
  'help' '-h --help --home= --json --all'
  'door' '-h --help --home= --json'
  'docs' '-h --help --home= --json --write= --table'
  'read' '-h --help --home= --json --user= --group= --line= --limit='
  'remember' '-h --help --home= --json --user= --group= --title='
  'note' '-h --help --home= --json --user= --group= --title='
)
typeset -gA _owlbox_values
_owlbox_values=(
  '. --home' '@file'
  'ask --home' '@file'
  'ask --user' '@person'
  'ask --group' '@group'
  'ask --thread' '@thread'
  'chat --home' '@file'
  'chat --user' '@person'
  'chat --group' '@group'
  'chat --thread' '@thread'
  'chat --thread-id' '@thread'
  'tui --home' '@file'
  'tui --user' '@person'
  'tui --group' '@group'
  'tui --thread' '@thread'
  'tui --thread-id' '@thread'
  'prompt-size --home' '@file'
  'prompt-size --role' '@role'
  'status --home' '@file'
  'reload --home' '@file'
  'init --home' '@file'
  'serve --home' '@file'
  'broker --home' '@file'
  'broker --socket' '@file'
  'web --home' '@file'
  'doctor --home' '@file'
  'maintain --home' '@file'
  'nuke --home' '@file'
  'nuke 1' 'context tasks schedules threads all'
  'config --home' '@file'
  'config list --home' '@file'
  'config set --home' '@file'
  'config set 1' '@key'
  'onboard --home' '@file'
  'backup --home' '@file'
  'backup 1' 'list'
  'restore --home' '@file'
  'restore 1' '@file'
  'update --home' '@file'
  'update check --home' '@file'
  'update apply --home' '@file'
  'update rollback --home' '@file'
  'update status --home' '@file'
  'update recover --home' '@file'
  'metrics --home' '@file'
  'logs --home' '@file'
  'logs --run' '@thread'
  'logs --level' 'info warning error'
  'export --home' '@file'
  'export --run' '@thread'
  'import --home' '@file'
  'entry --home' '@file'
  'entry --user' '@person'
  'entry --group' '@group'
  'entry list --home' '@file'
  'entry list --user' '@person'
  'entry list --group' '@group'
  'entry view --home' '@file'
  'entry view --user' '@person'
  'entry view --group' '@group'
  'entry view 1' '@entry'
  'entry set --home' '@file'
  'entry set --user' '@person'
  'entry set --group' '@group'
  'entry set 1' '@entry'
  'entry set --thread' '@thread'
  'entry set --visibility' 'visible summarized archived'
  'entry get --home' '@file'
  'entry get --user' '@person'
  'entry get --group' '@group'
  'entry get --persist' 'add readonly ignore none'
  'entry get 1' '@entry'
  'entry get --thread' '@thread'
  'entry rm --home' '@file'
  'entry rm --user' '@person'
  'entry rm --group' '@group'
  'entry rm 1' '@entry'
  'entry rm --thread' '@thread'
  'entry cp --home' '@file'
  'entry cp --user' '@person'
  'entry cp --group' '@group'
  'entry cp 1' '@entry'
  'entry cp --thread' '@thread'
  'entry cp --visibility' 'visible summarized archived'
  'entry mv --home' '@file'
  'entry mv --user' '@person'
  'entry mv --group' '@group'
  'entry mv 1' '@entry'
  'entry mv --thread' '@thread'
  'entry mv --visibility' 'visible summarized archived'
  'entry waiting --home' '@file'
  'entry waiting --user' '@person'
  'entry waiting --group' '@group'
  'entry waiting --thread' '@thread'
  'entry trust --home' '@file'
  'entry trust --user' '@person'
  'entry trust --group' '@group'
  'entry trust 1' '@entry'
  'entry accept --home' '@file'
  'entry accept --user' '@person'
  'entry accept --group' '@group'
  'entry accept 1' '@entry'
  'entry accept --thread' '@thread'
  'entry reject --home' '@file'
  'entry reject --user' '@person'
  'entry reject --group' '@group'
  'entry reject 1' '@entry'
  'entry reject --thread' '@thread'
  'entry update --home' '@file'
  'entry update --user' '@person'
  'entry update --group' '@group'
  'entry update --status' '102 200 204 422'
  'entry update --thread' '@thread'
  'search --home' '@file'
  'search --user' '@person'
  'search --group' '@group'
  'search --in' 'notes threads memory skills tools'
  'search --by' 'words meaning letters pattern'
  'skill --home' '@file'
  'skill list --home' '@file'
  'skill list --user' '@person'
  'skill show --home' '@file'
  'skill show 1' '@skill'
  'skill show 2' '@file'
  'skill show --user' '@person'
  'skill search --home' '@file'
  'skill search --user' '@person'
  'skill create --home' '@file'
  'skill create 1' '@skill'
  'skill create --file' '@file'
  'skill create --user' '@person'
  'skill validate --home' '@file'
  'skill install --home' '@file'
  'skill install --user' '@person'
  'skill remove --home' '@file'
  'skill remove 1' '@skill'
  'skill remove --user' '@person'
  'skill delete --home' '@file'
  'skill delete 1' '@skill'
  'skill delete --user' '@person'
  'skill trust --home' '@file'
  'skill trust 1' '@skill'
  'skill trust --user' '@person'
  'skill prepare --home' '@file'
  'skill prepare 1' '@skill'
  'skill prepare --user' '@person'
  'memory --home' '@file'
  'memory --user' '@person'
  'memory --group' '@group'
  'memory list --home' '@file'
  'memory list --user' '@person'
  'memory list --group' '@group'
  'memory list --kind' 'note preference decision fact context'
  'memory add --home' '@file'
  'memory add --user' '@person'
  'memory add --group' '@group'
  'memory search --home' '@file'
  'memory search --user' '@person'
  'memory search --group' '@group'
  'memory show --home' '@file'
  'memory show --user' '@person'
  'memory show --group' '@group'
  'memory forget --home' '@file'
  'memory forget --user' '@person'
  'memory forget --group' '@group'
  'memory topics --home' '@file'
  'memory topics --user' '@person'
  'memory topics --group' '@group'
  'model --home' '@file'
  'model list --home' '@file'
  'model add --home' '@file'
  'model add 1' '@model'
  'model rm --home' '@file'
  'model rm 1' '@model'
  'model offer --home' '@file'
  'model offer 1' 'yes no'
  'model use --home' '@file'
  'model use 1' '@model'
  'model info --home' '@file'
  'model info 1' '@model'
  'model bench --home' '@file'
  'model bench 1' '@model'
  'model providers --home' '@file'
  'model remote --home' '@file'
  'model reset --home' '@file'
  'usage --home' '@file'
  'usage --by' 'day person session model provider'
  'usage --person' '@person'
  'usage --session' '@session'
  'thread --home' '@file'
  'thread --user' '@person'
  'thread --group' '@group'
  'thread list --home' '@file'
  'thread list --user' '@person'
  'thread list --group' '@group'
  'thread list --type' 'chat ask tick child'
  'thread view --home' '@file'
  'thread view --user' '@person'
  'thread view --group' '@group'
  'thread view 1' '@thread'
  'thread search --home' '@file'
  'thread search --user' '@person'
  'thread search --group' '@group'
  'thread delete --home' '@file'
  'thread delete --user' '@person'
  'thread delete --group' '@group'
  'thread delete 1' '@thread'
  'thread follow --home' '@file'
  'thread follow --user' '@person'
  'thread follow --group' '@group'
  'thread follow 1' '@thread'
  'thread tree --home' '@file'
  'thread tree --user' '@person'
  'thread tree --group' '@group'
  'thread tree 1' '@thread'
  'thread abort --home' '@file'
  'thread abort --user' '@person'
  'thread abort --group' '@group'
  'thread abort 1' '@thread'
  'thread rename --home' '@file'
  'thread rename --user' '@person'
  'thread rename --group' '@group'
  'thread rename 1' '@thread'
  'thread inject --home' '@file'
  'thread inject --user' '@person'
  'thread inject --group' '@group'
  'thread inject 1' '@thread'
  'thread fork --home' '@file'
  'thread fork --user' '@person'
  'thread fork --group' '@group'
  'thread fork 1' '@thread'
  'thread jump --home' '@file'
  'thread jump --user' '@person'
  'thread jump --group' '@group'
  'thread jump 1' '@thread'
  'thread config --home' '@file'
  'thread config --user' '@person'
  'thread config --group' '@group'
  'thread config 1' '@thread'
  'thread config --model' '@model'
  'thread config --role' '@role'
  'thread config --approval' 'ask review auto'
  'thread export --home' '@file'
  'thread export --user' '@person'
  'thread export --group' '@group'
  'thread export 1' '@thread'
  'thread export -o' '@file'
  'thread export --output' '@file'
  'session --home' '@file'
  'session list --home' '@file'
  'session list --user' '@person'
  'session list --type' 'user group'
  'session list --status' 'created active idle stopped archived closing closed'
  'session view --home' '@file'
  'session view 1' '@session'
  'session archive --home' '@file'
  'session archive 1' '@session'
  'session resume --home' '@file'
  'session resume 1' '@session'
  'session close --home' '@file'
  'session close 1' '@session'
  'session delete --home' '@file'
  'session delete 1' '@session'
  'session export --home' '@file'
  'session export 1' '@session'
  'session export -o' '@file'
  'session export --output' '@file'
  'session export --all' '@file'
  'session import --home' '@file'
  'session import +' '@file'
  'run --home' '@file'
  'run --user' '@person'
  'run --group' '@group'
  'run list --home' '@file'
  'run list --user' '@person'
  'run list --group' '@group'
  'run view --home' '@file'
  'run view --user' '@person'
  'run view --group' '@group'
  'run view 1' '@thread'
  'run tree --home' '@file'
  'run tree --user' '@person'
  'run tree --group' '@group'
  'run tree 1' '@thread'
  'run abort --home' '@file'
  'run abort --user' '@person'
  'run abort --group' '@group'
  'run abort 1' '@thread'
  'run rename --home' '@file'
  'run rename --user' '@person'
  'run rename --group' '@group'
  'run rename 1' '@thread'
  'run inject --home' '@file'
  'run inject --user' '@person'
  'run inject --group' '@group'
  'run inject 1' '@thread'
  'run fork --home' '@file'
  'run fork --user' '@person'
  'run fork --group' '@group'
  'run fork 1' '@thread'
  'run jump --home' '@file'
  'run jump --user' '@person'
  'run jump --group' '@group'
  'run jump 1' '@thread'
  'run config --home' '@file'
  'run config --user' '@person'
  'run config --group' '@group'
  'run config 1' '@thread'
  'run config --model' '@model'
  'run config --role' '@role'
  'run config --approval' 'ask review auto'
  'people --home' '@file'
  'people list --home' '@file'
  'people show --home' '@file'
  'people show 1' '@person'
  'people add --home' '@file'
  'people add 1' '@person'
  'people remove --home' '@file'
  'people remove 1' '@person'
  'people deactivate --home' '@file'
  'people deactivate 1' '@person'
  'people activate --home' '@file'
  'people activate 1' '@person'
  'people link --home' '@file'
  'people link 1' '@person'
  'people unlink --home' '@file'
  'people keys --home' '@file'
  'people keys 1' '@person'
  'people add-key --home' '@file'
  'people add-key 1' '@person'
  'people add-key 2' '@file'
  'people remove-key --home' '@file'
  'people remove-key 1' '@file'
  'people invite --home' '@file'
  'people invite 1' '@person'
  'people password --home' '@file'
  'people password 1' '@person'
  'people token --home' '@file'
  'people token 1' '@group'
  'people token --person' '@person'
  'people logins --home' '@file'
  'people logins 1' '@person'
  'people logout --home' '@file'
  'people group --home' '@file'
  'people group 1' '@group'
  'people group --add' '@person'
  'people group --leave' '@person'
  'channel --home' '@file'
  'channel list --home' '@file'
  'channel enable --home' '@file'
  'channel disable --home' '@file'
  'channel test --home' '@file'
  'channel rooms --home' '@file'
  'channel devices --home' '@file'
  'channel verify --home' '@file'
  'context --home' '@file'
  'context --user' '@person'
  'context --group' '@group'
  'context drives --home' '@file'
  'context drives --user' '@person'
  'context drives --group' '@group'
  'context tree --home' '@file'
  'context tree --user' '@person'
  'context tree --group' '@group'
  'context tree 1' '@entry'
  'context size --home' '@file'
  'context size --user' '@person'
  'context size --group' '@group'
  'context size 1' '@entry'
  'context list --home' '@file'
  'context list --user' '@person'
  'context list --group' '@group'
  'context list 1' '@entry'
  'context read --home' '@file'
  'context read --user' '@person'
  'context read --group' '@group'
  'context read 1' '@entry'
  'context info --home' '@file'
  'context info --user' '@person'
  'context info --group' '@group'
  'context info 1' '@entry'
  'context exists --home' '@file'
  'context exists --user' '@person'
  'context exists --group' '@group'
  'context exists 1' '@entry'
  'context lines --home' '@file'
  'context lines --user' '@person'
  'context lines --group' '@group'
  'context lines 1' '@entry'
  'context find --home' '@file'
  'context find --user' '@person'
  'context find --group' '@group'
  'context grep --home' '@file'
  'context grep --user' '@person'
  'context grep --group' '@group'
  'context grep --path' '@entry'
  'context grep --kind' 'regex glob literal'
  'context mkdir --home' '@file'
  'context mkdir --user' '@person'
  'context mkdir --group' '@group'
  'context mkdir 1' '@entry'
  'context write --home' '@file'
  'context write --user' '@person'
  'context write --group' '@group'
  'context write 1' '@entry'
  'context write --on-conflict' 'error overwrite'
  'context write --file' '@file'
  'context edit --home' '@file'
  'context edit --user' '@person'
  'context edit --group' '@group'
  'context edit 1' '@entry'
  'context delete --home' '@file'
  'context delete --user' '@person'
  'context delete --group' '@group'
  'context delete 1' '@entry'
  'context copy --home' '@file'
  'context copy --user' '@person'
  'context copy --group' '@group'
  'context move --home' '@file'
  'context move --user' '@person'
  'context move --group' '@group'
  'context search --home' '@file'
  'context search --user' '@person'
  'context search --group' '@group'
  'context search --path' '@entry'
  'context search --fusion' 'convex rrf'
  'context chunks --home' '@file'
  'context chunks --user' '@person'
  'context chunks --group' '@group'
  'context chunks 1' '@entry'
  'context reembed --home' '@file'
  'context reembed --user' '@person'
  'context reembed --group' '@group'
  'context add --home' '@file'
  'context add --user' '@person'
  'context add --group' '@group'
  'context add +' '@file'
  'context add --on-conflict' 'skip overwrite error'
  'context refresh --home' '@file'
  'context refresh --user' '@person'
  'context refresh --group' '@group'
  'task --home' '@file'
  'task --user' '@person'
  'task --group' '@group'
  'task add --home' '@file'
  'task add --user' '@person'
  'task add --group' '@group'
  'task add --priority' 'low medium high'
  'task add --blocked-by' '@task'
  'task update --home' '@file'
  'task update --user' '@person'
  'task update --group' '@group'
  'task update 1' '@task'
  'task update --priority' 'low medium high'
  'task update --blocked-by' '@task'
  'task delete --home' '@file'
  'task delete --user' '@person'
  'task delete --group' '@group'
  'task delete 1' '@task'
  'task list --home' '@file'
  'task list --user' '@person'
  'task list --group' '@group'
  'task list --status' 'pending in_progress waiting complete failed open'
  'task list --priority' 'low medium high'
  'task view --home' '@file'
  'task view --user' '@person'
  'task view --group' '@group'
  'task view 1' '@task'
  'task reset --home' '@file'
  'task reset --user' '@person'
  'task reset --group' '@group'
  'task reset 1' '@task'
  'task cancel --home' '@file'
  'task cancel --user' '@person'
  'task cancel --group' '@group'
  'task cancel 1' '@task'
  'task done --home' '@file'
  'task done --user' '@person'
  'task done --group' '@group'
  'task done 1' '@task'
  'task watch --home' '@file'
  'task watch --user' '@person'
  'task watch --group' '@group'
  'task watch 1' '@task'
  'schedule --home' '@file'
  'schedule --user' '@person'
  'schedule --group' '@group'
  'schedule add --home' '@file'
  'schedule add --user' '@person'
  'schedule add --group' '@group'
  'schedule add --action' 'tasks prompt message reminder'
  'schedule add --mode' 'session isolated silent'
  'schedule add --role' '@role'
  'schedule add --tell' 'all success failure nothing'
  'schedule list --home' '@file'
  'schedule list --user' '@person'
  'schedule list --group' '@group'
  'schedule list --status' 'active paused completed failed'
  'schedule list --type' 'scheduled heartbeat system'
  'schedule view --home' '@file'
  'schedule view --user' '@person'
  'schedule view --group' '@group'
  'schedule view 1' '@schedule'
  'schedule enable --home' '@file'
  'schedule enable --user' '@person'
  'schedule enable --group' '@group'
  'schedule enable 1' '@schedule'
  'schedule resume --home' '@file'
  'schedule resume --user' '@person'
  'schedule resume --group' '@group'
  'schedule resume 1' '@schedule'
  'schedule disable --home' '@file'
  'schedule disable --user' '@person'
  'schedule disable --group' '@group'
  'schedule disable 1' '@schedule'
  'schedule pause --home' '@file'
  'schedule pause --user' '@person'
  'schedule pause --group' '@group'
  'schedule pause 1' '@schedule'
  'schedule delete --home' '@file'
  'schedule delete --user' '@person'
  'schedule delete --group' '@group'
  'schedule delete 1' '@schedule'
  'schedule trigger --home' '@file'
  'schedule trigger --user' '@person'
  'schedule trigger --group' '@group'
  'schedule trigger 1' '@schedule'
  'schedule update --home' '@file'
  'schedule update --user' '@person'
  'schedule update --group' '@group'
  'schedule update 1' '@schedule'
  'schedule preview --home' '@file'
  'schedule preview --user' '@person'
  'schedule preview --group' '@group'
  'schedule run --home' '@file'
  'schedule run --user' '@person'
  'schedule run --group' '@group'
  'cron --home' '@file'
  'cron list --home' '@file'
  'cron add --home' '@file'
  'cron remove --home' '@file'
  'cron remove 1' '@schedule'
  'cron enable --home' '@file'
  'cron enable 1' '@schedule'
  'cron disable --home' '@file'
  'cron disable 1' '@schedule'
  'remind --home' '@file'
  'remind --user' '@person'
  'remind --group' '@group'
  'worker --home' '@file'
  'worker run --home' '@file'
  'worker run --task-id' '@task'
  'worker start --home' '@file'
  'worker start --task-id' '@task'
  'worker list --home' '@file'
  'worker list --status' 'running stopped dead'
  'worker status --home' '@file'
  'worker status 1' '@worker'
  'worker stop --home' '@file'
  'worker stop 1' '@worker'
  'worker kill --home' '@file'
  'worker kill 1' '@worker'
  'worker log --home' '@file'
  'worker log 1' '@worker'
  'worker reap --home' '@file'
  'packet --home' '@file'
  'packet size --home' '@file'
  'packet size 1' '@thread'
  'packet show --home' '@file'
  'packet show 1' '@thread'
  'packet show --part' 'system user answer reasoning'
  'packet compact --home' '@file'
  'packet compact 1' '@thread'
  'undo --home' '@file'
  'undo 1' '@thread'
  'history --home' '@file'
  'history --user' '@person'
  'history --group' '@group'
  'history 1' '@entry'
  'history --thread' '@thread'
  'sql --home' '@file'
  'approve --home' '@file'
  'approve 1' '@entry'
  'approve --thread' '@thread'
  'approve --output' '@file'
  'reject --home' '@file'
  'reject 1' '@entry'
  'reject --thread' '@thread'
  'reject --output' '@file'
  'grants --home' '@file'
  'grants list --home' '@file'
  'grants add --home' '@file'
  'grants add 1' 'exec web search send call secret schedule skill document plugin'
  'grants add --person' '@person'
  'grants revoke --home' '@file'
  'policy --home' '@file'
  'policy show --home' '@file'
  'policy show --session' '@session'
  'policy check --home' '@file'
  'policy check 1' '@file'
  'policy reload --home' '@file'
  'policy set --home' '@file'
  'policy set 1' '@session'
  'policy set 2' '@file'
  'policy unset --home' '@file'
  'policy unset 1' '@session'
  'policy test --home' '@file'
  'policy test --tool' '@tool'
  'policy test --role' '@role'
  'policy test --user' '@person'
  'policy test --session' '@session'
  'policy test --network' 'none proxy host'
  'policy log --home' '@file'
  'policy log --session' '@session'
  'policy log --run' '@thread'
  'policy log --severity' 'info warning error'
  'tool --home' '@file'
  'tool list --home' '@file'
  'secret --home' '@file'
  'secret list --home' '@file'
  'secret set --home' '@file'
  'secret set 1' '@secret'
  'secret show --home' '@file'
  'secret show 1' '@secret'
  'secret rm --home' '@file'
  'secret rm 1' '@secret'
  'secret expire --home' '@file'
  'secret expire 1' '@secret'
  'secret purge --home' '@file'
  'secret rotate --home' '@file'
  'secret rotate --to' 'file passphrase credential'
  'secret unlock --home' '@file'
  'role --home' '@file'
  'role list --home' '@file'
  'role view --home' '@file'
  'role view 1' '@role'
  'job --home' '@file'
  'job list --home' '@file'
  'job list --status' 'waiting running done failed cancelled'
  'job view --home' '@file'
  'job view 1' '@job'
  'job stop --home' '@file'
  'job stop 1' '@job'
  'document --home' '@file'
  'document --user' '@person'
  'document --group' '@group'
  'document list --home' '@file'
  'document list --user' '@person'
  'document list --group' '@group'
  'document view --home' '@file'
  'document view --user' '@person'
  'document view --group' '@group'
  'document view 1' '@document'
  'document edit --home' '@file'
  'document edit --user' '@person'
  'document edit --group' '@group'
  'document edit 1' '@document'
  'document write --home' '@file'
  'document write --user' '@person'
  'document write --group' '@group'
  'document write 1' '@document'
  'document write 2' '@file'
  'capabilities --home' '@file'
  'mcp --home' '@file'
  'mcp servers --home' '@file'
  'mcp list --home' '@file'
  'mcp list 1' '@server'
  'mcp ping --home' '@file'
  'mcp ping 1' '@server'
  'mcp add --home' '@file'
  'mcp add 1' '@server'
  'mcp add --expose' 'auto direct meta'
  'mcp remove --home' '@file'
  'mcp remove 1' '@server'
  'mcp auth --home' '@file'
  'mcp auth 1' '@server'
  'mcp deauth --home' '@file'
  'mcp deauth 1' '@server'
  'mcp search --home' '@file'
  'mcp info --home' '@file'
  'mcp info 1' '@server'
  'mcp info 2' '@tool'
  'mcp exec --home' '@file'
  'mcp exec 1' '@server'
  'mcp exec 2' '@tool'
  'mcp import-global --home' '@file'
  'mcp import-global 1' '@file'
  'mcp index --home' '@file'
  'mcp resource --home' '@file'
  'mcp resource 1' '@server'
  'mcp prompt --home' '@file'
  'mcp prompt 1' '@server'
  'mcp prompt 2' '@server'
  'mcp task --home' '@file'
  'mcp task 1' 'list get result cancel'
  'mcp task 2' '@server'
  'mcp-serve --home' '@file'
  'mcp-serve --socket' '@file'
  'acp --home' '@file'
  'call --home' '@file'
  'call 1' '@method'
  'completion --home' '@file'
  'completion 1' 'bash zsh fish names'
  'heartbeat --home' '@file'
  'mute --home' '@file'
  'help --home' '@file'
  'help +' '@command'
  'door --home' '@file'
  'docs --home' '@file'
  'docs --write' '@file'
  'read --home' '@file'
  'read --user' '@person'
  'read --group' '@group'
  'read +' '@entry'
  'remember --home' '@file'
  'remember --user' '@person'
  'remember --group' '@group'
  'note --home' '@file'
  'note --user' '@person'
  'note --group' '@group'
)

_owlbox() {
    local at=. pending= count=0 word given
    local -a rows
    for word in "${(@)words[2,CURRENT-1]}"; do
        if [[ -n $pending ]]; then
            pending=
        elif [[ $word == -* ]]; then
            [[ " ${_owlbox_options[$at]} " == *" $word= "* ]] && pending=$word
        elif [[ -n ${(M)${(f)_owlbox_words[$at]}:#${(b)word}:*} ]]; then
            [[ $at == . ]] && at=$word || at="$at $word"
            count=0
        else
            (( count += 1 ))
        fi
    done
    if [[ -n $pending ]]; then
        given=${_owlbox_values[$at $pending]}
    elif [[ $words[CURRENT] == -* ]]; then
        given=${_owlbox_options[$at]//=/}
    elif [[ -n ${_owlbox_words[$at]} ]]; then
        rows=("${(@f)_owlbox_words[$at]}")
        _describe command rows
        return
    else
        given=${_owlbox_values[$at $((count + 1))]:-${_owlbox_values[$at +]}}
    fi
    if [[ $given == @file ]]; then
        _files
    elif [[ $given == @* ]]; then
        rows=("${(@f)$(owlbox completion names ${given#@} 2>/dev/null)}")
        compadd -- ${${rows%%$'\t'*}:#}
    else
        compadd -- ${=given}
    fi
}

if [[ $funcstack[1] == _owlbox ]]; then
    _owlbox "$@"
else
    compdef _owlbox owlbox
fi
