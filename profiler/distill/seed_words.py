"""Words that prompts are made of by template: written for this project, names and figures invented."""

TOPICS = """the water cycle|black holes|photosynthesis|volcanoes|the human heart|vaccines|coral reefs|earthquakes|the ozone layer|bees
the French Revolution|the Roman Empire|the Silk Road|the Industrial Revolution|the Cold War|ancient Egypt|the Renaissance|the Vikings|the Black Death|the moon landing
supply and demand|inflation|compound interest|the stock market|insurance|taxes|budgeting|small businesses|marketing|online shops
machine learning|databases|computer networks|encryption|operating systems|version control|the internet|robots|electric cars|solar panels
gardening|baking bread|learning a language|playing the guitar|running a marathon|hiking|chess|photography|knitting|camping
sleep|a healthy breakfast|stress at work|friendship|public speaking|job interviews|moving house|raising children|adopting a dog|growing old
jazz|Shakespeare|impressionist painting|poetry|science fiction|architecture|film music|theatre|fairy tales|opera
gravity|electricity|magnets|the speed of light|evolution|genes and DNA|atoms|the periodic table|acids and bases|climate change
democracy|human rights|philosophy|ethics|justice|free will|education|cities|public transport|agriculture
rivers|deserts|the Arctic|rain forests|whales|dinosaurs|penguins|cats|horses|wolves
coffee|chocolate|cheese|rice|spices|tea|soup|fermentation|vegetarian food|street food
football|the Olympic Games|swimming|yoga|cycling|tennis|sailing|skiing|board games|volunteering"""

NAMES = "Anna Ben Carla David Elena Farid Grace Hugo Ines Jonas Kim Lukas Mona Nadia Oscar Priya Quinn Rosa Samuel Tara Umar Vera Walter Yasmin Zoe"

THINGS = "apples|books|pencils|stickers|marbles|cookies|eggs|tickets|flowers|bottles|chairs|stamps|cards|balloons|muffins|coins|bricks|shirts"

PLACES = "Paris|Berlin|a small village|Tokyo|the mountains|Lisbon|a big city|Canada|the coast|Rome|a farm|New York|Kenya|an island|Mexico"

ROLES = """a ship's captain in a storm|a strict librarian|a detective in the 1920s|a tired robot|the king of a small country|a travel guide|a science teacher
a football coach|a doctor who explains things simply|an old tree|a chef who hates waste|a stand-up comedian|a historian|a friendly dragon|an astronaut on Mars
a job interviewer|a gardener|a fitness trainer|a lawyer|a time traveller from the year 2300"""

FUNCTIONS = """reverses a string|checks whether a number is prime|sorts a list of numbers|counts the words in a text|finds the largest element of a list
removes duplicates from a list|computes the factorial of a number|checks whether a string is a palindrome|merges two sorted lists|adds two matrices
converts Celsius to Fahrenheit|reads a CSV file and prints each row|counts how often each letter occurs|computes the average of a list|finds the second largest number
flattens a nested list|validates an email address|generates a random password|computes the greatest common divisor|searches a sorted list by bisection
rotates a list by k places|sums the digits of a number|groups words by their first letter|finds all pairs that add up to a target|implements a stack
implements a queue with two stacks|returns the nth triangular number|capitalises every word|transposes a matrix|converts a number to binary
parses a date such as 2024-05-17|calculates the area of a circle|computes the median of a list|encodes a text by run lengths|checks whether brackets are balanced
simulates the roll of a dice|finds the longest word in a sentence|counts vowels|downloads a page and prints its title|builds a linked list"""

LANGUAGES = "Python|Python|Python|JavaScript|Java|C|C++|Rust|Go|SQL|TypeScript"

TASKS = {
    "chat": """I want to learn about {topic}. Where should I start?|What do you think about {topic}?|Can you give me some advice about {topic}?|Tell me something surprising about {topic}.
My friend {name} is interested in {topic}. What present would fit?|I feel stuck with {topic} lately. Any ideas?|What are the pros and cons of {topic}?|How has {topic} changed over the last years?
I am visiting {place} next week. What should I see there?|Hello! Can you help me with {topic}?|Plan a weekend in {place} for two people.|How do I explain {topic} to a child?""",
    "qa": """What is {topic}?|Why is {topic} important?|Who was important for {topic}?|When did {topic} begin?|How does {topic} work?|What are the main kinds of {topic}?|Where does {topic} come from?
What is the capital of the country where {place} lies?|What causes problems with {topic}?|Name three facts about {topic}.|What is the difference between {topic} and {topic2}?|Is {topic} dangerous?
who first studied {topic}|what year did {topic} become popular|how many people care about {topic}|where is the best place to see {topic}|what is another word for {topic}""",
    "writing": """Write a short story about {topic}.|Write a poem about {topic}.|Write a professional email to {name} about {topic}.|Write a blog post about {topic} for beginners.|Describe {place} in one paragraph with all senses.
Write an outline for an essay on {topic}.|Write a persuasive paragraph in favour of {topic}.|Write a dialogue between {name} and {name2} about {topic}.|Write a product description that has to do with {topic}.|Write a haiku about {topic}.
Write a letter to the editor about {topic}.|Draft a speech of one minute on {topic}.|Write a short news article about {topic}.|Write an encyclopedia entry about {topic}.|Write a report of about 150 words about {topic} in {place}.""",
    "roleplay": """Pretend to be {role}. What do you say about {topic}?|You are {role}. Introduce yourself.|Imagine that you are {role} and answer my question: what is the best thing about {topic}?|Act as {role} and tell me about your day in {place}.""",
    "reasoning": """{name} is taller than {name2}, and {name2} is taller than {name3}. Who is the shortest?|If all {thing} in a box are red and I take one out, what colour is it? Explain.|{name} has {a} brothers and each of them has one sister. How many sisters are there?
Is it better to learn about {topic} or about {topic2}? Compare both and decide.|What would happen if there were no {topic}?|A farmer has {a} cows and all but {b} run away. How many are left?|Give an argument for and an argument against {topic}.
Which does not belong: {thing}, {thing2}, {topic}? Explain your reasoning.|What can we conclude if {name} is in {place} on Monday and in another city on Tuesday?""",
    "maths": """{name} has {a} {thing} and buys {b} more. Then {name} gives {c} to {name2}. How many {thing} does {name} have now?|A box holds {a} {thing}. How many {thing} are in {b} boxes?|{name} earns ${a} an hour and works {b} hours a day for {c} days. How much does {name} earn?
A train travels {d} miles in {c} hours. What is its average speed?|{name} buys {b} {thing} for ${c} each and pays with a ${d} bill. How much change does {name} get?|What is {a} * {b}?|What is {d} divided by {c}?|Solve for x: {c}x + {a} = {d}.
{name} reads {a} pages a day. How long does a book of {d} pages take?|There are {d} {thing} in a shop. {a} are sold on Monday and twice as many on Tuesday. How many are left?|The area of a rectangle is {d} and its width is {c}. What is its length?|What is {b}% of {d}?
{name} is {b} years older than {name2}, who is {a}. How old will {name} be in {c} years?|A recipe for {c} people needs {a} {thing}. How many are needed for {b} people?|{name} runs {c} miles on each of {b} days and {a} miles on Sunday. How many miles is that in total?
What is the sum of the first {a} even numbers?|If a shirt costs ${d} and is reduced by {b}%, what is its new price?|{name} saves ${a} every week and has ${d} already. How much money does {name} have after {b} weeks?|{name} had {d} {thing}. Half of them were given away and {c} were lost. How many are left?
{name} and {name2} share {d} {thing} in the ratio {b} to {c}. How many does each get?""",
    "code": r"""Write a {language} function that {function}.|Write a {language} program that {function}.|Explain how a {language} function that {function} works.|How do I write a function in {language} that {function}? Add comments.|Write a {language} class that {function}, with tests.
def solution(x):\n    ''' A function that {function}.\n    '''\n\nComplete this Python function.|What is the time complexity of code that {function}?|Complete the following Python function.\n\nfrom typing import List\n\ndef {function_name}(values: List[int]):\n    '''This function {function}.\n    >>> {function_name}([1, 2, {a}])\n    '''\n""",
    "steps": """Give me step by step instructions for {topic}.|How do I get started with {topic}? Make a checklist.|List five tips for {topic}.|Make a plan for a week that includes {topic} and {topic2}.|List ten words that have to do with {topic}.|Name {c} books about {topic}.|Make a packing list for a trip to {place}.
List the advantages of {topic} as bullet points.|Create a table with three columns about {topic}.|Give me {c} questions to test my knowledge of {topic}.|Order these by size: {thing}, {thing2}, {place}.""",
    "translation": """Translate to French: {sentence}|Translate to German: {sentence}|Translate to Spanish: {sentence}|How do you say "{sentence}" in Italian?|Translate German to English: {german}|Translate the following sentence from German to English: {german}|Translate German to English: {german}""",
    "extraction": """Extract all names and places from this text: {name} and {name2} travelled from {place} to {place2} with {a} {thing}, where {name3} was waiting.|List the numbers in this sentence: {name} sold {a} {thing} for ${d} and {b} {thing2} for ${c}.
Classify each of these as positive or negative: "I love {topic}." "{place} was disappointing." "{name} is always late."|Turn this into JSON with name, age and city: {name} is {a} years old and lives in {place}.|Answer with one word: is "{topic}" about science, history, sports or everyday life?
Identify the cheapest item: {thing} cost ${a}, {thing2} cost ${b}, a ticket to {place} costs ${d}.""",
    "rewrite": """Rewrite this politely: {name}, where are my {thing}? You are late again.|Correct the grammar: {name} have went to {place} and buyed {a} {thing} yesterday.|Make this sentence shorter: {sentence}|Rewrite in the past tense: {sentence}|Rewrite as a question: {sentence}""",
}

SENTENCES = """My sister works in a hospital near {place}.|We bought {a} {thing} at the market this morning.|The meeting with {name} starts at nine and ends before lunch.|I would like to learn more about {topic}.
Could you please tell me the way to the station?|The weather in {place} was better than we expected.|{name} told us a long story about {topic}.|If it rains tomorrow, we will stay at home and read.|Nobody knew why the {thing} were on the table.
The new law on {topic} will come into force next year.|After the storm the village had no electricity for {b} days.|Many experts believe that {topic} will change our lives."""

GERMAN = """Meine Schwester arbeitet seit {b} Jahren in einem Krankenhaus.|Gestern haben wir auf dem Markt {a} Eier und etwas Brot gekauft.|Die Sitzung mit {name} beginnt um neun Uhr und endet vor dem Mittagessen.|Könnten Sie mir bitte den Weg zum Bahnhof zeigen?
Das Wetter in {place} war besser, als wir erwartet hatten.|Wenn es morgen regnet, bleiben wir zu Hause und lesen.|Niemand wusste, warum die Tür offen stand.|Die Stadt will bis zum nächsten Jahr {a} neue Wohnungen bauen.|{name} erzählte den Kindern eine lange Geschichte vom Meer.
Nach dem Sturm hatte das Dorf {b} Tage lang keinen Strom.|Der Zug nach {place} fährt heute leider nicht.|Viele Menschen interessieren sich für die Geschichte ihrer Familie.|Das Museum zeigt bis Ende des Monats Bilder junger Künstler aus der Region.
Die Polizei bittet Zeugen, sich zu melden.|Trotz der hohen Preise ist das Hotel im Sommer immer ausgebucht.|Der Minister sagte, die Verhandlungen seien noch nicht abgeschlossen.|Im Garten hinter dem Haus wachsen alte Apfelbäume.|Sie hat das Buch in einer Nacht gelesen."""

PASSAGE_TASKS = {
    "summary": r"""Summarize: {passage}|Summarize the following text in two sentences.\n\n{passage}|Give me a short summary of this article.\n\n{passage}|What is the main point of this text?\n\n{passage}""",
    "rag": r"""Context:\n{passage}\n\nQuestion: What does the text say about {topic}?|Read the following passage and answer the question.\n\n{passage}\n\nQuestion: Why does this matter?|{passage}\n\nAccording to the text above, what is the most important fact?
Answer by the documents only.\n\nDocument 1: {passage}\n\nDocument 2: {passage2}\n\nQuestion: What do these documents have in common?|Use this information: {passage}\nQuestion: who or what is this about?""",
    "rewrite": r"""Rewrite the following text for children.\n\n{passage}|Turn this text into a list of bullet points.\n\n{passage}|Improve the style of this text.\n\n{passage}""",
    "extraction": r"""List the key facts of this text.\n\n{passage}|Extract all names, places and numbers from the text.\n\n{passage}""",
    "turns": """Can you make your answer shorter?|Thanks. Can you give me an example?|Explain the last point in more detail.|Now say the same in simple words.|Why?|Can you rewrite that as a list?|What else should I know?|Are you sure?""",
}
