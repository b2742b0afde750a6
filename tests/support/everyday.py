"""Everyday sentences, made from frames and fillers: those that ask for an effect, and those that only look or sound like it.

Deterministic. Frames are as people write: with and without capitals, courtesy and full stops, in four languages.
"""

import itertools
import random
from collections.abc import Iterator

THINGS = (
    *(
        "the roses",
        "my bike",
        "the old lamp",
        "the car keys",
        "Anna's present",
        "the tax letter",
        "the oven",
        "our holiday",
        "the garden fence",
    ),
    *(
        "the dentist",
        "a loaf of bread",
        "the school trip",
        "Tom",
        "the neighbours",
        "the printer",
        "milk and eggs",
        "the boiler",
        "the report",
    ),
)
DEEDS = (
    *(
        "water the roses",
        "call the plumber",
        "buy stamps",
        "send Bob the invoice",
        "book the ferry",
        "feed the cat",
        "renew the passport",
    ),
    *(
        "clean the windows",
        "order toner",
        "pick up Lea from the station",
        "write to the landlord",
        "mow the lawn",
        "pay the rent",
        "fix the bike",
    ),
)
FACTS = (
    *(
        "the spare key is with Ada",
        "Tom does not drink coffee",
        "my locker number is 12",
        "Lea is allergic to walnuts",
        "the shop closes at six",
    ),
    *(
        "our anniversary is on 4 June",
        "the lamp needs an E14 bulb",
        "Bram has a new phone",
        "the meeting was moved to Friday",
        "I parked on level 3",
    ),
)
WHENS = (
    *(
        "in 20 minutes",
        "tomorrow at 9",
        "at 6pm",
        "on Friday at 10",
        "every Monday at 8",
        "tonight at 8",
        "in two hours",
        "next Tuesday at noon",
    ),
    *("on 28 November at 8 am", "every day at 7", "tomorrow morning", "at 18:30"),
)
DE_DEEDS = ("Rosen gießen", "Toner bestellen", "Milch kaufen", "den Klempner anrufen", "das Rad reparieren", "die Miete überweisen")
DE_FACTS = ("der Schlüssel unter der Matte liegt", "Anna keinen Käse mag", "der Laden um sechs schließt", "Tom am Freitag kommt")
DE_WHENS = ("in 10 Minuten", "morgen um 9 Uhr", "am Freitag um 17:30 Uhr", "jeden Montag um 8 Uhr", "heute Abend um 20 Uhr")
FR_DEEDS = ("arroser les roses", "acheter du lait", "appeler le plombier", "payer le loyer")
FR_FACTS = ("la clé est sous le tapis", "Anna est végétarienne", "le magasin ferme à six heures")
FR_WHENS = ("dans 20 minutes", "demain à 9 h", "lundi à 10h30", "tous les lundis à 8 heures")
ES_DEEDS = ("regar las rosas", "comprar leche", "llamar al fontanero", "pagar el alquiler")
ES_FACTS = ("la llave está debajo de la alfombra", "Ana es vegetariana", "la tienda cierra a las seis")
ES_WHENS = ("en 20 minutos", "mañana a las 9", "el lunes a las 10:30", "cada lunes a las 8")

FILLERS = {
    "thing": THINGS,
    "deed": DEEDS,
    "fact": FACTS,
    "when": WHENS,
    "dedeed": DE_DEEDS,
    "defact": DE_FACTS,
    "dewhen": DE_WHENS,
    "frdeed": FR_DEEDS,
    "frfact": FR_FACTS,
    "frwhen": FR_WHENS,
    "esdeed": ES_DEEDS,
    "esfact": ES_FACTS,
    "eswhen": ES_WHENS,
}

# (intents that are right, frame)
ASKING = (
    ("remember", "Remember that {fact}."),
    ("remember", "remember: {fact}"),
    ("remember", "Please remember that {fact}"),
    ("remember", "Can you remember that {fact}?"),
    ("remember", "Keep in mind that {fact}."),
    ("remember", "Don't forget that {fact}!"),
    ("remember", "Save this: {fact}."),
    ("remember", "Note that {fact}."),
    ("remember", "Make a note that {fact}"),
    ("remember", "Hey owl, remember {fact}"),
    ("remember", "I want you to remember that {fact}."),
    ("remember", "{fact}, remember that."),
    ("remember", "For later: remember that {fact}"),
    ("remember", "Could you please keep in mind that {fact}?"),
    ("task", "Add a task to {deed}."),
    ("task", "add task: {deed}"),
    ("task", "New task: {deed}"),
    ("task", "Todo: {deed}"),
    ("task", "Put {deed} on my to-do list."),
    ("task", "Add '{deed}' to my list"),
    ("task", "Could you add {deed} to my tasks?"),
    ("task", "Create a new task called {deed}"),
    ("task", "Please put {deed} on the list, thanks."),
    ("task", "I need to {deed}, put it on my list."),
    ("task", "Make a task: {deed}"),
    ("task", "add an urgent task to {deed}"),
    ("task", "Add {deed} as a task."),
    ("task", "I have to {deed}, add that to my to-do list please"),
    ("task", "Set up a task for me to {deed}"),
    ("remind", "Remind me {when} to {deed}."),
    ("remind", "remind me to {deed} {when}"),
    ("remind", "Can you remind me to {deed} {when}?"),
    ("remind", "Please remind me {when} about {thing}."),
    ("remind", "Set a reminder to {deed} {when}."),
    ("remind", "Set a reminder {when} for {thing}"),
    ("remind", "I want to be reminded {when} to {deed}"),
    ("remind", "Could you set me a reminder to {deed} {when}, please?"),
    ("remind", "Create a reminder: {deed} {when}"),
    ("remind", "Reminder: {deed} {when}"),
    ("remind_late alarm remind", "{when} remind me to {deed}"),
    ("alarm", "Wake me {when}."),
    ("alarm", "Set an alarm for 7am"),
    ("alarm", "set a timer for 10 minutes"),
    ("remember_to", "Don't forget to {deed}."),
    ("done", "Mark the task about {thing} as done."),
    ("done", "The task {deed} is done."),
    ("done", "tick off {deed}"),
    ("done", "I have finished the task {deed}"),
    ("done", "Cross {deed} off my list"),
    ("cancel", "Cancel the reminder about {thing}."),
    ("cancel", "Delete the reminder to {deed}"),
    ("cancel", "please remove my reminder for {thing}"),
    ("drop_task", "Delete the task about {thing}."),
    ("drop_task", "Remove {deed} from my list."),
    ("forget", "Forget what I told you about {thing}."),
    ("forget", "Forget that {fact}."),
    ("forget", "Please forget everything about {thing}"),
    ("priority", "Set the priority of the task {deed} to high."),
    ("priority", "Make the task about {thing} high priority"),
    ("note", "Write a note called Plans that says: {fact}."),
    ("note", "Create a note: {fact}"),
    ("note", "Take a note saying {fact}"),
    ("remember", "Merk dir, dass {defact}."),
    ("remember", "Bitte merke dir: {defact}"),
    ("remember", "Vergiss nicht, dass {defact}!"),
    ("remember", "Kannst du dir merken, dass {defact}?"),
    ("task", "Füge eine Aufgabe hinzu: {dedeed}"),
    ("task", "Neue Aufgabe: {dedeed}"),
    ("task", "Setz {dedeed} auf meine Liste."),
    ("task", "Schreib {dedeed} auf die To-do-Liste, bitte."),
    ("remind", "Erinnere mich {dewhen} an {dedeed}."),
    ("remind", "Kannst du mich {dewhen} an {dedeed} erinnern?"),
    ("remind", "Erinnere mich daran, {dewhen} {dedeed}"),
    ("alarm", "Weck mich morgen um 7."),
    ("done", "Markiere die Aufgabe {dedeed} als erledigt."),
    ("cancel", "Lösche die Erinnerung an {dedeed}."),
    ("remember", "Retiens que {frfact}."),
    ("remember", "N'oublie pas que {frfact}"),
    ("task", "Ajoute une tâche : {frdeed}"),
    ("task", "Mets {frdeed} sur ma liste."),
    ("remind", "Rappelle-moi {frwhen} de {frdeed}."),
    ("remind", "Peux-tu me rappeler {frwhen} de {frdeed} ?"),
    ("remember", "Recuerda que {esfact}."),
    ("task", "Añade una tarea: {esdeed}"),
    ("task", "Pon {esdeed} en mi lista."),
    ("remind", "Recuérdame {eswhen} {esdeed}."),
)

NOT_ASKING = (
    *(
        "Do you remember {thing}?",
        "I remember {thing} very well.",
        "Remember when we saw {thing}?",
        "I can't remember where I put {thing}.",
    ),
    *(
        "She asked me to remember that {fact}.",
        "How do I make you remember that {fact}?",
        "Will you remember that {fact} tomorrow, I wonder",
    ),
    *(
        "I always forget that {fact}.",
        "Did I tell you that {fact}?",
        "I think {fact}.",
        "It is true that {fact}.",
        "He said {fact}.",
    ),
    *("Is it true that {fact}?", "Why did you note that {fact}?", "I added a task to {deed} yesterday."),
    *("How do I add a task?",),
    *(
        "What happens when I add a task to {deed}?",
        "Should I {deed}?",
        "I should {deed} some day.",
        "I have to {deed}.",
        "Who can {deed}?",
    ),
    *("We could {deed} together.", "My wife wants to {deed}.", "The task to {deed} was hard."),
    *("Is the task about {thing} done?",),
    *(
        "Who added the task about {thing}?",
        "What do you need to {deed}?",
        "How long does it take to {deed}?",
        "Let us talk about {thing}.",
    ),
    *("I put {thing} on the table.", "Put yourself in my place.", "I love {thing}.", "Where is {thing}?"),
    *("Tell me about {thing}.",),
    *(
        "What reminds you of {thing}?",
        "That reminds me of {thing}.",
        "{thing} reminds me of my childhood.",
        "He reminded me {when}.",
    ),
    *("Remind me what we said about {thing}.", "Why do people set reminders to {deed}?", "My phone will remind me {when}."),
    *(
        "The alarm rang {when}.",
        "I set an alarm for {when} myself.",
        "Is there a reminder about {thing}?",
        "When does the timer end?",
    ),
    *(
        "I woke up and thought of {thing}.",
        "What is a reminder?",
        "I will {deed} {when}.",
        "We meet {when}.",
        "Are you free {when}?",
    ),
    *("What shall we do {when}?", "The train leaves {when}.", "I was told to {deed} {when}.", "Somebody should {deed} {when}."),
    *("Is it a good idea to {deed} {when}?", "I finished {thing}.", "{thing} is done for.", "We are done with {thing}."),
    *("Mark is my brother.", "Mark told me about {thing}.", "Did you cancel {thing}?", "They cancelled {thing}.", "Forget it."),
    *("Forget about it, it does not matter.", "I never forget {thing}.", "Don't worry about {thing}.", "You forgot {thing}."),
    *(
        "I deleted {thing} by mistake.",
        "What would happen if I deleted {thing}?",
        "Notes are useful.",
        "I wrote a note about {thing}.",
    ),
    *(
        "Where are my notes about {thing}?",
        "What do my notes say about {thing}?",
        "Can you write?",
        "I like to write letters about {thing}.",
    ),
    *(
        "What is the priority of {thing}?",
        "Which task is the most urgent?",
        "Is {thing} urgent?",
        "{thing} has no priority for me.",
    ),
    *(
        "What is on my list?",
        "How many tasks do I have?",
        "What tasks are there about {thing}?",
        "Hello, how are you?",
        "Thanks, that was kind.",
    ),
    *(
        "What time is it?",
        "What is the capital of Spain?",
        "Tell me a story about {thing}.",
        "Summarise this: {fact}.",
        "Translate to German: {deed}.",
    ),
    *(
        "Rewrite politely: {deed} now.",
        "Correct this: {deed} tomorow.",
        "Write a poem about {thing}.",
        "Write a message to Bob about {thing}.",
    ),
    *(
        "If I say 'add a task', what happens?",
        "'Remember that {fact}' is what she wrote.",
        "The note says: {deed}.",
        "I wonder whether to {deed}.",
    ),
    *("Nobody told me that {fact}!", "Good to know that {fact}.", "Thank you for telling me that {fact}."),
    *("Do I have to {deed}?",),
    *(
        "Do you know whether {fact}?",
        "Can you {deed}?",
        "Could you explain why {fact}?",
        "Why should I {deed}?",
        "Never mind {thing}.",
    ),
    *(
        "Erinnerst du dich an {dedeed}?",
        "Ich erinnere mich an {dedeed}.",
        "Hast du die Aufgabe {dedeed} gesehen?",
        "Ich muss noch {dedeed}.",
    ),
    *(
        "Wann soll ich {dedeed}?",
        "Vergiss es.",
        "Ich habe vergessen, dass {defact}.",
        "Wusstest du, dass {defact}?",
        "Guten Morgen!",
    ),
    *(
        "Was steht auf meiner Liste?",
        "Wie spät ist es?",
        "Ich glaube, dass {defact}.",
        "Wir treffen uns {dewhen}.",
        "Erzähl mir von {dedeed}.",
    ),
    *("Tu te souviens de Paul ?", "Je dois {frdeed}.", "Quelle heure est-il ?", "Je sais que {frfact}."),
    *("On se voit {frwhen}.",),
    *(
        "Pourquoi {frfact} ?",
        "Merci beaucoup !",
        "¿Recuerdas a Juan?",
        "Tengo que {esdeed}.",
        "Creo que {esfact}.",
        "Nos vemos {eswhen}.",
    ),
    *(
        "¿Es verdad que {esfact}?",
        "¡Muchas gracias!",
        "¿Qué tareas tengo?",
        "I dreamt that I had to {deed}.",
        "Anna, add salt to the soup.",
    ),
    *(
        "He put {thing} on his list of favourites.",
        "Add 3 and 4.",
        "Set the table, please.",
        "Wake up!",
        "Save water.",
        "Keep calm.",
    ),
    *(
        "Note the difference between {thing} and tea.",
        "Finish your soup.",
        "Close the door.",
        "Delete is a strong word.",
        "Stop it.",
    ),
    *("Remember me?", "Remember, remember, the fifth of November.", "Reminder emails are annoying.", "Task force X is a film."),
    *(
        "What does 'todo' mean?",
        "Todo el mundo lo sabe.",
        "Never forget!",
        "Lest we forget.",
        "I keep {thing} in mind.",
        "Bear with me.",
    ),
    *("Search for the truth is hard.", "Who is looking after {thing}?"),
    *("Set in 1920, the film is about {thing}.", "Make it so."),
    *(
        "Every Monday I {deed}.",
        "In two hours it will rain.",
        "Tomorrow I will {deed}.",
        "At 8 I usually {deed}.",
        "Tonight we {deed}.",
    ),
    *("Put the kettle on.", "Take it off my hands.", "Cross the road.", "Tick tock.", "Check the weather."),
    *("The list is long.",),
)


def _filled(frame: str, pick: random.Random) -> str:
    text = frame
    for name, fillers in FILLERS.items():
        while f"{{{name}}}" in text:
            text = text.replace(f"{{{name}}}", pick.choice(fillers), 1)
    return text


def _varied(text: str, n: int) -> str:
    """The same as others would type it."""
    if n % 4 == 1:
        text = text.lower() if n % 8 == 1 else text.rstrip(".!")
    if n % 4 == 2:
        text = text[:1].upper() + text[1:]
    return text


def asking(count: int) -> Iterator[tuple[frozenset[str], str]]:
    """Sentences that ask for an effect, with the intents that are right."""
    pick = random.Random(7)
    for n, (intents, frame) in enumerate(itertools.islice(itertools.cycle(ASKING), count)):
        yield frozenset(intents.split()), _varied(_filled(frame, pick), n // len(ASKING) + n)


def not_asking(count: int) -> Iterator[str]:
    """Sentences that ask for none."""
    pick = random.Random(11)
    for n, frame in enumerate(itertools.islice(itertools.cycle(NOT_ASKING), count)):
        yield _varied(_filled(frame, pick), n // len(NOT_ASKING) + n)
